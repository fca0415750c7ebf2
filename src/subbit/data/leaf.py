"""LEAF (Caldas et al. 2018): train/*.json and test/*.json, each

    {"users": [id, ...], "num_samples": [...], "user_data": {id: {"x": [...], "y": [...]}}}

FEMNIST has x = 784 grey values from 0 to 1 and y = 0 to 61; Shakespeare has x = 80 characters and y = the next one. The
owner of an example is its user. Only one file is in memory at a time: it is read once for the labels and again for the
inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source
from subbit.data.lookup import read_bytes
from subbit.data.text import ALPHABET, character_numbers

SIDE = 28


def open_leaf(folder: Path) -> tuple[Source, Source]:
    return _source(folder / "train"), _source(folder / "test")


def _source(folder: Path) -> Source:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder}: found no .json; need the files that LEAF's preprocess.sh writes")
    labels: list[int] = []
    owners: list[str] = []
    counts: list[int] = []
    is_text = False
    for path in files:
        for user, inputs, targets in _users(path):
            is_text = is_text or bool(inputs and isinstance(inputs[0], str))
            labels += [_label(target, is_text, f"{path}, user {user!r}") for target in targets]
            owners += [user] * len(targets)
        counts.append(len(labels))

    def read(indices: Indices) -> Tensor:
        parts = []
        for path, start, stop in zip(files, [0, *counts], counts, strict=False):
            wanted = indices[(indices >= start) & (indices < stop)] - start
            if len(wanted):
                rows = [(user, one) for user, inputs, _ in _users(path) for one in inputs]
                parts += [
                    _input(rows[position][1], is_text, f"{path}, user {rows[position][0]!r}") for position in wanted
                ]
        return torch.from_numpy(_stacked(parts, folder))

    return Source(str(folder), np.array(labels, dtype=np.int64), read, owners, len(ALPHABET) if is_text else None)


def _stacked(rows: list[NDArray[Any]], folder: Path) -> NDArray[Any]:
    if len({row.shape for row in rows}) > 1:
        raise DataError(f"{folder}: found texts of {sorted({len(row) for row in rows})} characters; need one length")
    return np.stack(rows)


def _users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error}); need a JSON file of LEAF, whole") from error
    data = content.get("user_data") if isinstance(content, dict) else None
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(users, list):
        raise DataError(f"{path}: found no users or user_data; need a JSON file of LEAF")
    for user in users:
        own = data.get(user) if isinstance(user, str) else None
        if not isinstance(own, dict):
            raise DataError(f"{path}: found user {user!r} without user_data")
        inputs, targets = own.get("x"), own.get("y")
        if not isinstance(inputs, list) or not isinstance(targets, list) or len(inputs) != len(targets):
            raise DataError(f"{path}, user {user!r}: found x and y that are not two lists of one length")
        yield user, inputs, targets


def _label(target: Any, is_text: bool, where: str) -> int:
    if is_text and isinstance(target, str) and len(target) == 1:
        return int(character_numbers(target)[0])
    if not is_text and type(target) is int and 0 <= target < 1 << 31:
        return target
    raise DataError(f"{where}: found y {target!r}; need {'one character' if is_text else 'a class from 0'}")


def _input(content: Any, is_text: bool, where: str) -> NDArray[Any]:
    if is_text and isinstance(content, str) and content:
        return character_numbers(content).astype(np.int64)
    if not is_text and isinstance(content, list) and len(content) == SIDE * SIDE:
        try:
            values = np.array(content, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            values = np.zeros(0)
        if values.shape == (SIDE * SIDE,) and values.min() >= 0 and values.max() <= 1:
            return np.rint(values * 255).astype(np.uint8).reshape(1, SIDE, SIDE)
    need = "a text" if is_text else f"{SIDE * SIDE} numbers from 0 to 1"
    raise DataError(f"{where}: found x that is not {need}")

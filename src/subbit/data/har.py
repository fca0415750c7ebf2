"""UCI HAR: 561 features of smartphone motion, six activities, thirty people (Anguita et al., ESANN 2013).

train/ and test/ hold X_<split>.txt (561 numbers per line), y_<split>.txt (1 to 6) and subject_<split>.txt (1 to 30).

    split=official  as published: 21 people train, the other nine test
    split=own       every person is a device with its own test data, as in FedMask: the last fifth of each activity.
                    Not every fifth window, because consecutive windows overlap by half.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Indices, Source, as_inputs
from subbit.data.lookup import read_lines

FEATURES, ACTIVITIES, PEOPLE = 561, 6, 30
OWN_TEST_SHARE = 5


def open_har(folder: Path, *, split: str = "official") -> tuple[Source, Source]:
    if split not in ("official", "own"):
        raise ConfigError(f"found split={split}; there are official, own")
    train, test = _source(folder, "train"), _source(folder, "test")
    return (train, test) if split == "official" else _own(folder, train, test)


def _source(folder: Path, split: str) -> Source:
    labels = _integers(folder / split / f"y_{split}.txt", ACTIVITIES) - 1
    people = _integers(folder / split / f"subject_{split}.txt", PEOPLE)
    if len(people) != len(labels):
        raise DataError(f"{folder / split}: found {len(labels)} activities and {len(people)} people; need one of each")
    path = folder / split / f"X_{split}.txt"

    def read(indices: Indices) -> Tensor:
        lines = read_lines(path)
        if len(lines) != len(labels):
            raise DataError(f"{path}: found {len(lines)} lines for {len(labels)} labels; need one line per label")
        return as_inputs(_features([lines[position] for position in indices], path), str(path))

    return Source(str(path), labels, read, [f"person {person}" for person in people], ACTIVITIES)


def _features(lines: list[str], path: Path) -> NDArray[np.float32]:
    try:
        values = np.loadtxt(lines, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise DataError(f"{path}: found a line that is not numbers ({error}); need {FEATURES} per line") from error
    if values.shape != (len(lines), FEATURES):
        raise DataError(f"{path}: found {values.shape[1]} numbers per line; need {FEATURES}")
    return values


def _integers(path: Path, highest: int) -> Indices:
    lines = read_lines(path)
    for line in lines:
        if not (line.isascii() and line.isdigit() and 1 <= int(line[:9]) <= highest):
            raise DataError(f"{path}: found {line[:40]!r}; need an integer from 1 to {highest} per line")
    return np.array([int(line) for line in lines], dtype=np.int64)


def _own(folder: Path, *halves: Source) -> tuple[Source, Source]:
    """Merge both splits and divide them again within each person and activity."""
    labels = np.concatenate([half.labels for half in halves])
    owners = np.array([owner for half in halves for owner in half.owners or ()])
    is_test = np.zeros(len(labels), dtype=bool)
    for owner in np.unique(owners):
        for label in range(ACTIVITIES):
            members = np.flatnonzero((owners == owner) & (labels == label))
            is_test[members[len(members) - len(members) // OWN_TEST_SHARE :]] = True
    border = len(halves[0].labels)

    def source(name: str, members: Indices) -> Source:
        def read(indices: Indices) -> Tensor:
            wanted = members[indices]
            parts = [half.tensor(part) for half, part in zip(halves, _cut(wanted, border), strict=True) if len(part)]
            return torch.cat(parts)

        return Source(f"{folder}, {name}", labels[members], read, owners[members].tolist(), ACTIVITIES)

    return source("train", np.flatnonzero(~is_test)), source("test", np.flatnonzero(is_test))


def _cut(positions: Indices, border: int) -> tuple[Indices, Indices]:
    return positions[positions < border], positions[positions >= border] - border

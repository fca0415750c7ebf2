"""Exported files: safetensors with one JSON object as metadata, every byte of which is checked.

A file ends with the SHA-256 of its contents and must be byte-identical to what `pack` makes of what `unpack` read. This
detects accidental damage. It does not authenticate: a forged file can have a valid checksum, so readers must still
validate everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from subbit.core.errors import FrameError, RunFolderError

LONGEST_HEADER = 1 << 20
CHECKSUM = "sha256"

Tensors = dict[str, NDArray[Any]]


def pack(kind: str, description: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> bytes:
    text = json.dumps(description, sort_keys=True)
    # Not `ascontiguousarray`, which turns a scalar into an array of one.
    whole = {name: np.asarray(array, order="C") for name, array in sorted(tensors.items())}
    digest = hashlib.sha256(f"{kind} {text}".encode())
    for name, array in whole.items():
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    whole[CHECKSUM] = np.frombuffer(digest.digest(), dtype=np.uint8)
    return write_tensors(whole, {f"subbit-{kind}": text})


def unpack(kind: str, data: bytes) -> tuple[dict[str, Any], Tensors]:
    """Description and tensors; raises `FrameError` for anything that `pack` would not have written."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, LONGEST_HEADER):
        raise FrameError("truncated", f"not a {kind} file: {len(data)} bytes that begin {data[:8].hex()}")
    try:
        description = dict(json.loads(json.loads(data[8 : 8 + length])["__metadata__"][f"subbit-{kind}"]))
        tensors = read_tensors(data)
        tensors.pop(CHECKSUM)
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise FrameError("not-a-frame", f"not a {kind} file: {reason[0][:200]}") from None
    if pack(kind, description, tensors) != data:
        raise FrameError("checksum", f"the {kind} file is damaged: its bytes are not those that its contents make")
    return description, tensors


def read_file(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None

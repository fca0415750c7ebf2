"""Named arrays in a safetensors file with a checksum of its contents. Nothing is unpickled.

Any safetensors reader can open the file. Its metadata entry `sha256` is the digest of all other metadata and of every
array's name, type, shape and bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from subbit.core.errors import RunFolderError
from subbit.core.files import replace_file

Arrays = dict[str, NDArray[Any]]
DIGEST = "sha256"


class DamagedFileError(RunFolderError):
    """A file that is missing, cannot be read, or has the wrong contents."""


def write_arrays(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str],
    *,
    digest: str | None = None,
    durable: bool = True,
    named: bool = True,
) -> str:
    """Replace the file atomically and return the digest of its contents. Pass `digest` if it is already known. For the
    other options see `replace_file`."""
    contents = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    digest = digest or digest_of(contents, metadata)
    replace_file(path, save(contents, {**metadata, DIGEST: digest}), durable=durable, named=named)
    return digest


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata, `sha256` included, exactly as they were written."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            arrays: Arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFileError(f"{path} cannot be read: {error}") from None
    others = {name: value for name, value in metadata.items() if name != DIGEST}
    if metadata.get(DIGEST) != digest_of(arrays, others):
        raise DamagedFileError(f"{path} is damaged: its contents do not add up to its checksum")
    return arrays, metadata


def read_digest(path: Path) -> str | None:
    """Return the digest stored in the file without reading the arrays; None if there is no such file."""
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {}).get(DIGEST)
    except (OSError, SafetensorError):
        return None


def digest_of(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    state = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(arrays):
        value = np.asarray(arrays[name], order="C")
        state.update(json.dumps([name, value.dtype.str, value.shape]).encode())
        state.update(value.reshape(-1).view(np.uint8).data)
    return state.hexdigest()

"""Array files: idx (the format of MNIST, raw or gzip) and npz (numpy).

Both formats give their size in a header. It is checked against the actual contents of the file. Memory grows with the
bytes read and never with a number from the header, and decompression stops at the declared size.

    idx  two zero bytes, one byte for the type, one for the rank, the sizes (32 bits), the values; all big-endian
    npz  a zip archive of .npy members; members that would need pickle are rejected
"""

from __future__ import annotations

import gzip
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source, as_inputs, as_labels, pick

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IDX_NAME = re.compile(r"(?:.*-)?(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?")
MAXIMUM_RANK = 4
CHUNK = 1 << 20


def read_idx(path: Path) -> NDArray[Any]:
    """Read the array of an idx file; a name that ends with `.gz` means gzip."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _read_idx_stream(stream, str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); need an idx file, whole and unharmed") from error


def _read_idx_stream(stream: IO[bytes] | gzip.GzipFile, where: str) -> NDArray[Any]:
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in IDX_TYPES or not 1 <= start[3] <= MAXIMUM_RANK:
        raise DataError(
            f"{where}: found the first bytes {start.hex() or 'none'}; need an idx header of rank 1 to {MAXIMUM_RANK}"
        )
    rank, kind = start[3], np.dtype(IDX_TYPES[start[2]])
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise DataError(f"{where}: found a header of {4 + len(sizes)} bytes; need {4 + 4 * rank} for rank {rank}")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    promised = math.prod(shape) * kind.itemsize
    data = bytearray()
    while len(data) < promised and (chunk := stream.read(min(CHUNK, promised - len(data)))):
        data += chunk
    if len(data) < promised or stream.read(1):
        found = f"only {len(data)}" if len(data) < promised else "more"
        raise DataError(f"{where}: the header promises {promised} bytes for {list(shape)} but the file holds {found}")
    return np.frombuffer(data, kind).reshape(shape).astype(kind.newbyteorder("="), copy=False)


def idx_files(folder: Path, prefix: str = "") -> dict[tuple[str, str], Path]:
    """("train" or "test", "images" or "labels") -> file. A raw file takes precedence over its gzip version."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        match = IDX_NAME.fullmatch(path.name)
        if match is None or not path.name.startswith(prefix):
            continue
        place = ("train" if match[1] == "train" else "test", match[2])
        other = found.setdefault(place, path)
        if other.name.removesuffix(".gz") != path.name.removesuffix(".gz"):
            raise DataError(
                f"{folder}: found both {other.name} and {path.name}; need one file of {place[0]} {place[1]}"
            )
    return found


def open_idx(folder: Path) -> tuple[Source, Source]:
    files = idx_files(folder)
    return idx_source(folder, files, "train"), idx_source(folder, files, "test")


def idx_source(folder: Path, files: dict[tuple[str, str], Path], split: str) -> Source:
    for content in ("images", "labels"):
        if (split, content) not in files:
            names = ", ".join(sorted(path.name for path in files.values())) or "no idx file"
            prefix, rank = ("train" if split == "train" else "t10k"), 3 if content == "images" else 1
            raise DataError(
                f"{folder}: the {content} of the {split} split are missing; found {names}; "
                f"need {prefix}-{content}-idx{rank}-ubyte(.gz)"
            )
    images, path = files[split, "images"], files[split, "labels"]
    labels = as_labels(read_idx(path), str(path))
    return Source(
        str(path),
        labels,
        lambda indices: as_inputs(pick(read_idx(images), indices, len(labels), str(images)), str(images)),
    )


def open_npz(path: Path) -> tuple[Source, Source]:
    """Open x_train, y_train, x_test, y_test and, optionally, owners_train and owners_test."""
    return _npz_source(path, "train"), _npz_source(path, "test")


def _npz_source(path: Path, split: str) -> Source:
    labels = read_npz(path, f"y_{split}")
    if not labels.ndim:
        raise DataError(f"{path}, y_{split}: found a single value; need one label per example [n, ...]")
    where = f"{path}, x_{split}"

    def read(indices: Indices) -> Any:
        array = read_npz(path, f"x_{split}")
        if array.ndim == 4 and array.dtype == np.uint8 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
            array = np.moveaxis(array, 3, 1)  # Channels last, as Keras stores images.
        return as_inputs(pick(array, indices, len(labels), where), where)

    owners = None
    if f"owners_{split}" in npz_names(path):
        array = read_npz(path, f"owners_{split}")
        if array.ndim != 1 or array.dtype.kind not in "iuU" or len(array) != len(labels):
            raise DataError(
                f"{path}, owners_{split}: found {array.dtype} {list(array.shape)}; "
                f"need {len(labels)} strings or integers, one per label"
            )
        owners = [str(owner) for owner in array]
    return Source(f"{path}, y_{split}", labels, read, owners)


def npz_names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); need an npz file, whole and unharmed") from error


def read_npz(path: Path, name: str) -> NDArray[Any]:
    """Read one array of an npz file, never with pickle."""
    names = npz_names(path)
    if name not in names:
        raise DataError(
            f"{path}: {name} is missing; found {', '.join(names) or 'no array'}; "
            "need x_train, y_train, x_test and y_test"
        )
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
            return _read_npy_stream(stream, archive.getinfo(f"{name}.npy").file_size, f"{path}, {name}")
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}, {name}: cannot be read ({error}); need an array, whole and unharmed") from error


def _read_npy_stream(stream: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """Check the shape in the header before allocating; `numpy.load` would allocate any shape that it claims."""
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise DataError(f"{where}: found .npy version {version}; need 1.0 or 2.0")
    shape, fortran_order, kind = readers[version](stream)
    if kind.hasobject:
        raise DataError(f"{where}: found Python objects, which need pickle; need an array of numbers or strings")
    promised, held = math.prod(shape) * kind.itemsize, size - stream.tell()
    if promised != held:
        raise DataError(f"{where}: the header promises {promised} bytes for {list(shape)} but the file holds {held}")
    data = stream.read(promised)
    if len(data) != promised:
        raise DataError(
            f"{where}: the header promises {promised} bytes for {list(shape)} but the file holds only {len(data)}"
        )
    array = np.frombuffer(data, kind).reshape(shape, order="F" if fortran_order else "C")
    return array.astype(kind.newbyteorder("="), copy=False)

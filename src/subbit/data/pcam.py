"""PatchCamelyon (Veeling et al. 2018): 96 x 96 patches of lymph node sections, with or without a tumour in the centre.

camelyonpatch_level_2_split_{train,test}_{x,y}.h5: x uint8 [n, 96, 96, 3], y [n, 1, 1, 1]. HDF5 needs h5py, the extra
`hdf5` of this package. The files are published as .h5.gz; unpack them so that single patches can be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source, as_labels
from subbit.data.lookup import check_memory

SIDE = 96
ROWS = 1024
"""Patches read at once: fancy indexing in h5py takes minutes where a few slices take seconds."""
LARGEST_RATIO = 1100


def open_pcam(folder: Path) -> tuple[Source, Source]:
    return _source(folder, "train"), _source(folder, "test")


def _source(folder: Path, split: str) -> Source:
    name = f"camelyonpatch_level_2_split_{split}"
    images, path = folder / f"{name}_x.h5", folder / f"{name}_y.h5"
    column = _rows(path, "y", None)
    labels = as_labels(column.reshape(len(column), -1), str(path))

    def read(indices: Indices) -> Tensor:
        check_memory(len(indices), 3 * SIDE * SIDE, str(images), "there is no smaller form")
        patches = _rows(images, "x", indices, (len(labels), SIDE, SIDE, 3))
        return torch.from_numpy(np.ascontiguousarray(patches.transpose(0, 3, 1, 2)))

    return Source(str(path), labels, read, classes=2)


def _rows(path: Path, name: str, indices: Indices | None, shape: tuple[int, ...] | None = None) -> Any:
    if not path.is_file():
        packed = path.with_name(f"{path.name}.gz")
        hint = f"unpack it with gunzip: found {packed.name}" if packed.is_file() else "it is missing"
        raise DataError(f"{path}: need this file; {hint}")
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            f"{path}: reading HDF5 needs h5py, which is not installed: pip install 'subbit[hdf5]'; or use a copy of "
            "the set in another format, such as hf:NAME"
        ) from error
    try:
        with h5py.File(path, "r") as file:
            if name not in file or not isinstance(file[name], h5py.Dataset):
                raise DataError(f"{path}: found {', '.join(file) or 'nothing'}; need the array {name}")
            array = file[name]
            stored = array.id.get_storage_size()
            if array.dtype != np.uint8 or (shape is not None and array.shape != shape) or not array.shape:
                need = list(shape) if shape else "[n, 1, 1, 1]"
                raise DataError(f"{path}, {name}: found {array.dtype} {list(array.shape)}; need uint8 {need}")
            if np.prod(array.shape, dtype=object) > LARGEST_RATIO * stored:
                raise DataError(f"{path}, {name}: claims {list(array.shape)} values in {stored} bytes")
            return array[:] if indices is None else _gather(array, indices)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}); need an HDF5 file, whole and unharmed") from error


def _gather(array: Any, indices: Indices) -> Any:
    chosen = np.empty((len(indices), *array.shape[1:]), dtype=np.uint8)
    for start in range(0, len(array), ROWS):
        places = np.flatnonzero((indices >= start) & (indices < start + ROWS))
        if len(places):
            chosen[places] = array[start : start + ROWS][indices[places] - start]
    return chosen

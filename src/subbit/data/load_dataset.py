"""Load a `Dataset` by name or path.

Only hf:NAME downloads. For any other missing data set the error says where to get it and where to put it.
"""

from __future__ import annotations

import gzip
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.blame import blaming
from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key
from subbit.core.registry import nearest
from subbit.data.batches import as_examples
from subbit.data.examples import Dataset, Examples, Source, check_range
from subbit.data.formats import open_npz
from subbit.data.hub import PREFIX, open_hub
from subbit.sets.layouts import LAYOUTS, read_plugin_options, split_options
from subbit.sets.named import NAMED
from subbit.sets.places import folders, locate, named_set

PATHS = (
    "an .npz file, or a folder of idx files, of train/<class>/ and test/<class>/ with images, "
    "or in another of the layouts of docs/data.md"
)


def load_dataset(
    name: str,
    *,
    limit: int | None = None,
    test_limit: int | None = None,
    classes: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Load the data set with this name or path.

    name     one of `dataset_names()` or a path (x.npz, or a folder in one of `layouts.LAYOUTS`), optionally followed
             by options of its reader such as ?size=64; or hf:NAME (see `hub`)
    limit    maximum number of training examples; each class keeps its share, the seed selects; `test_limit` likewise
    classes  number of classes, if the labels do not contain every class; all labels must be smaller
    """
    train, test = _open(name)
    for split, source in (("train", train), ("test", test)):
        if not len(source.labels):
            raise DataError(f"{name}: found no examples in the {split} split ({source.where}); need at least one")
    known = named_set(split_options(name)[0])
    declared = (known.classes if known else None) or train.classes
    highest = int(max(train.labels.max(), test.labels.max()))
    count = classes or declared or highest + 1
    for source in (train, test):  # All labels, including those of examples that a limit leaves out.
        check_range(source.labels, count, source.where)
    return Dataset(
        name,
        train.examples(limit, derive_key(seed, "subsample-train")),
        test.examples(test_limit, derive_key(seed, "subsample-test")),
        count,
    )


def _open(text: str) -> tuple[Source, Source]:
    if text.startswith(PREFIX):
        return open_hub(text)
    name, options = split_options(text)
    named = named_set(name)
    if named is not None and not named.layouts:
        _refuse_options(text, options)
        return _open_digits()
    if named is not None:
        located = locate(name, named)
        if located is None:
            files = "; or ".join(LAYOUTS[layout].files for layout in named.layouts)
            places = ", ".join(str(folder) for folder in folders(name, named))
            raise DataError(
                f"{name} is not on this machine; get it from: {named.origin}; put it in one of: {places} ({files})"
            )
        folder, layout = located
        return layout.open(folder, **layout.read_options(options, text))
    return _open_path(name, options)


def _open_theirs(name: str, options: dict[str, str]) -> tuple[Source, Source]:
    opens: Any = NAMED[name]
    with blaming(f"data set {name!r}", opens):
        found: Any = opens(**read_plugin_options(opens, options, name))
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise DataError(
            f"{name}: its plugin returned {type(found).__name__}; need what to train on and what to test on"
        )

    def source(split: str, examples: Examples) -> Source:
        labels = examples.labels.numpy()
        return Source(f"{name}, {split}", labels, lambda indices: examples.tensor[indices], examples.owners)

    train, test = map(as_examples, found)
    return source("train", train), source("test", test)


def _open_path(name: str, options: dict[str, str]) -> tuple[Source, Source]:
    path = Path(name).expanduser()
    if path.is_dir():
        layout = next((layout for layout in LAYOUTS.values() if layout.fits(path)), None)
        if layout is None:
            found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
            raise DataError(f"{name}: found {found}; need {PATHS}")
        return layout.open(path, **layout.read_options(options, name))
    if path.is_file():
        if path.suffix != ".npz":
            raise DataError(f"{name}: found a file that does not end in .npz; need {PATHS}")
        _refuse_options(name, options)
        return open_npz(path)
    if os.sep in name or path.suffix == ".npz":
        raise DataError(f"{name}: there is no such file or folder; need {PATHS}")
    if name in NAMED:
        return _open_theirs(name, options)
    raise DataError(f"unknown data set {name!r}: {nearest(name, NAMED.names())} (or give a path or hf:NAME)")


def _refuse_options(where: str, options: dict[str, str]) -> None:
    if options:
        raise ConfigError(f"{where}: found the options {', '.join(options)}; this set has none")


def _open_digits() -> tuple[Source, Source]:
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

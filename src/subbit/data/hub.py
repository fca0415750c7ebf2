"""Hugging Face `datasets`, by hub name or local folder (parquet, image folder, ...).

    hf:NAME   hf:NAME:CONFIG   hf:NAME?image=img&label=fine_label&owner=writer_id&size=64&train=train&test=validation
    hf:NAME?text=content&tokenizer=words&length=128     for data sets without images; see `text` for tokenizers

`datasets` 4 runs no code from the hub. Images are decoded by `images`, so that its limits apply.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source, as_labels
from subbit.data.images import Pixels, decode_image, stack_images
from subbit.data.text import tokenise

PREFIX = "hf:"
COLUMNS = {"image": ("image", "img"), "text": ("text", "content"), "label": ("label", "fine_label", "labels")}
TEST_SPLITS = ("test", "validation", "valid", "val")
OPTIONS = ("image", "label", "length", "owner", "revision", "size", "test", "text", "tokenizer", "train")
LARGEST_NUMBER = 4096


@dataclass(frozen=True)
class Address:
    name: str
    config: str | None
    options: dict[str, str]


def parse_address(text: str) -> Address:
    """Parse the name of a hub data set.

    >>> parse_address("hf:cifar100?label=fine_label")
    Address(name='cifar100', config=None, options={'label': 'fine_label'})
    """
    path, _, query = text.removeprefix(PREFIX).partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for option, value in options.items():
        if option not in OPTIONS or not value:
            raise DataError(f"{text}: found {option}={value}; the options are {', '.join(OPTIONS)}, each with a value")
    for option in ("size", "length"):
        number = options.get(option, "1")
        if not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= LARGEST_NUMBER):
            raise DataError(f"{text}: found {option}={number}; need an integer from 1 to {LARGEST_NUMBER}")
    name, colon, config = (path, "", "") if Path(path).exists() else path.rpartition(":")
    name, config = (name, config) if colon else (path, "")
    if not name:
        raise DataError(f"{text}: the name is missing; need hf:NAME or hf:NAME:CONFIG")
    if "revision" in options and Path(name).exists():
        raise DataError(f"{text}: a local folder has no revisions; leave out revision={options['revision']}")
    return Address(name, config or None, options)


def open_hub(text: str) -> tuple[Source, Source]:
    address = parse_address(text)
    with quiet_datasets():
        import datasets

        try:
            splits = datasets.load_dataset(address.name, address.config, revision=address.options.get("revision"))
        except Exception as error:  # Anything that the hub, the network, the cache or a parser may raise.
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{text}: datasets.load_dataset failed ({reason}); need a name on the Hugging Face hub that this "
                "machine can reach or has in its cache, or a local folder"
            ) from error
        train = address.options.get("train", "train")
        test = address.options.get("test") or next((name for name in TEST_SPLITS if name in splits), "test")
        for split in (train, test):
            if split not in splits:
                raise DataError(
                    f"{text}: there is no split {split!r}; found {', '.join(splits)}; "
                    "name it with ?train=... or ?test=..."
                )
        return _source(text, address, train, splits[train]), _source(text, address, test, splits[test])


def _source(text: str, address: Address, split: str, table: Any) -> Source:
    where, options, columns = f"{text}, {split}", address.options, table.column_names
    has_image = "image" in options or any(name in columns for name in COLUMNS["image"])
    is_text = "text" in options or (not has_image and any(name in columns for name in COLUMNS["text"]))
    read = (_text_reader if is_text else _image_reader)(where, options, table)
    label = _column(where, "label", options, columns)
    labels = as_labels(_values(table, label), f"{where}, column {label!r}")
    owners = None
    if "owner" in options:
        owners = [str(value) for value in _values(table, _column(where, "owner", options, columns))]
    return Source(where, labels, read, owners, getattr(table.features[label], "num_classes", None))


def _image_reader(where: str, options: dict[str, str], table: Any) -> Callable[[Indices], Tensor]:
    import datasets

    column = _column(where, "image", options, table.column_names)
    if not isinstance(table.features[column], datasets.Image):
        raise DataError(f"{where}: found column {column!r} of type {table.features[column]}; need a column of images")
    size = int(options["size"]) if "size" in options else None

    def images(indices: Indices) -> Iterator[tuple[str, Pixels]]:
        undecoded = table.select_columns([column]).cast_column(column, datasets.Image(decode=False)).select(indices)
        for position, row in zip(indices, undecoded, strict=True):
            place, cell = f"{where}, row {position}", row[column]
            if cell is None or (cell["bytes"] is None and cell["path"] is None):
                raise DataError(f"{place}: found no image")
            file = Path(cell["path"]) if cell["bytes"] is None else io.BytesIO(cell["bytes"])
            yield place, decode_image(file, place, size)

    def read(indices: Indices) -> Tensor:
        with quiet_datasets():
            return stack_images(images(indices))

    return read


def _text_reader(where: str, options: dict[str, str], table: Any) -> Callable[[Indices], Tensor]:
    column = _column(where, "text", options, table.column_names)
    if getattr(table.features[column], "dtype", None) not in ("string", "large_string"):  # CSV has the second type.
        raise DataError(f"{where}: found column {column!r} of type {table.features[column]}; need a column of texts")

    def read(indices: Indices) -> Tensor:
        with quiet_datasets():
            texts = [row or "" for row in table.select_columns([column]).select(indices)[:][column]]
        return tokenise(texts, options.get("tokenizer", "words"), int(options.get("length", "128")))

    return read


def _values(table: Any, column: str) -> Any:
    return np.asarray(table.select_columns([column]).with_format("numpy")[:][column])


def _column(where: str, role: str, options: dict[str, str], columns: list[str]) -> str:
    wanted = (options[role],) if role in options else COLUMNS[role]
    for name in wanted:
        if name in columns:
            return name
    raise DataError(
        f"{where}: found the columns {', '.join(columns)}; need {' or '.join(wanted)}; name it with ?{role}=..."
    )


@contextlib.contextmanager
def quiet_datasets() -> Iterator[None]:
    """Suppress progress bars, log lines and warnings of `datasets`, and restore its settings afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets

        bars, verbosity = not datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity_error()
        try:
            # flwr-datasets uses tqdm directly and has no option to disable it.
            with contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            datasets.logging.set_verbosity(verbosity)
            if bars:
                datasets.enable_progress_bars()

"""Hugging Face `datasets`, by hub name or local folder (parquet, image folder, ...).

    hf:NAME   hf:NAME:CONFIG   hf:NAME?image=img&label=fine_label&owner=writer_id&size=64&train=train&test=validation
    hf:NAME?text=content&tokenizer=words&length=128     for data sets without images; see `text` for tokenizers
    hf:NAME?test_share=0.2                              for data sets without a split to test on

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

from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Inputs, Source
from subbit.data.hub_columns import COLUMNS, Part, find_column, held_out_rows, labels_of, owners_of
from subbit.data.images import Pixels, decode_image, stack_images
from subbit.data.needs import FOR_CLASSES, Needs, Reading
from subbit.data.text import tokenise, tokenise_masked

PREFIX = "hf:"
TEST_SPLITS = ("test", "validation", "valid", "val")
OPTIONS = ("image", "label", "length", "owner", "revision", "size", "test", "test_share", "text", "tokenizer", "train")
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


def open_hub(text: str, reading: Reading = FOR_CLASSES) -> tuple[Source, Source]:
    address = parse_address(text)
    needs, options = reading.needs, address.options
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
        train = options.get("train", "train")
        test = options.get("test") or next((name for name in TEST_SPLITS if name in splits), "test")
        for split in (train,) if "test_share" in options else (train, test):
            if split not in splits:
                raise DataError(
                    f"{text}: there is no split {split!r}; found {', '.join(splits)}; "
                    "name it with ?train=... or ?test=..., or hold out a share with ?test_share=0.2"
                )
        if "test_share" in options:
            return _sources(*held_out_rows(text, options, splits[train], needs), options, needs)
        return _sources((f"{text}, {train}", splits[train]), (f"{text}, {test}", splits[test]), options, needs)


def _sources(train: Part, test: Part, options: dict[str, str], needs: Needs) -> tuple[Source, Source]:
    labels, classes = labels_of(train, test, options, needs)

    def source(where: str, table: Any, values: NDArray[Any]) -> Source:
        names = table.column_names
        has_image = "image" in options or any(name in names for name in COLUMNS["image"])
        is_text = "text" in options or (not has_image and any(name in names for name in COLUMNS["text"]))
        read = _text_reader(where, options, table, needs) if is_text else _image_reader(where, options, table)
        return Source(
            where, values, read, owners_of(where, options, table), classes, notes=labels.notes, names=labels.names
        )

    return source(*train, labels.train), source(*test, labels.test)


def _image_reader(where: str, options: dict[str, str], table: Any) -> Callable[[Indices], Tensor]:
    import datasets

    column = find_column(where, "image", options, table.column_names)
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


def _text_reader(where: str, options: dict[str, str], table: Any, needs: Needs) -> Callable[[Indices], Inputs]:
    column = find_column(where, "text", options, table.column_names)
    if getattr(table.features[column], "dtype", None) not in ("string", "large_string"):  # CSV has the second type.
        raise DataError(f"{where}: found column {column!r} of type {table.features[column]}; need a column of texts")

    def read(indices: Indices) -> Inputs:
        with quiet_datasets():
            texts = [row or "" for row in table.select_columns([column]).select(indices)[:][column]]
        make = tokenise_masked if needs.label_kind == "token" else tokenise
        return make(texts, options.get("tokenizer", "words"), int(options.get("length", "128")))

    return read


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

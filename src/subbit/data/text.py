"""Texts as numbers: the 80 characters of next-character prediction, word tokens, and AG News.

    characters  the alphabet of LEAF (Caldas et al. 2018), the 80 classes of FedMask; any other counts as a space
    tokenizer   words    a number below 30,522 (the vocabulary of BERT) per word, by its checksum: for random weights
                bytes    UTF-8, padded with 0, for char-lstm
                NAME     a tokenizer of transformers, by hub name or folder: pre-trained models need their own

AG News (Zhang et al. 2015) is train.csv and test.csv with rows "class","title","description", classes from 1 to 4.
"""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source
from subbit.data.lookup import read_text

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
VOCABULARY = 30_522
OWN_TOKENIZERS = ("words", "bytes")
WORD = re.compile(r"\w+|[^\w\s]")
AG_NEWS_CLASSES = 4

_NUMBER_OF = np.full(128, ALPHABET.index(" "), dtype=np.uint8)
_NUMBER_OF[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(len(ALPHABET))


def character_numbers(text: str) -> NDArray[np.uint8]:
    """Indices into `ALPHABET`, one byte each.

    >>> character_numbers("A~b").tolist()
    [26, 1, 55]
    """
    codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), "<u4")
    numbers: NDArray[np.uint8] = _NUMBER_OF[np.minimum(codes, len(_NUMBER_OF) - 1)]
    return numbers


def tokenise(texts: Sequence[str], tokenizer: str, length: int) -> Tensor:
    """int64 [n, length], truncated or padded at the end."""
    if tokenizer == "words":
        rows = [[_word_number(word) for word in WORD.findall(text.lower())[:length]] for text in texts]
    elif tokenizer == "bytes":
        rows = [list(text.encode(errors="surrogatepass")[:length]) for text in texts]
    else:
        return _by_transformers(texts, tokenizer, length)
    tokens = torch.zeros((len(texts), length), dtype=torch.int64)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return tokens


def _word_number(word: str) -> int:
    """1 to VOCABULARY - 1; 0 is the padding."""
    return 1 + zlib.crc32(word.encode(errors="surrogatepass")) % (VOCABULARY - 1)


def tokenise_masked(texts: Sequence[str], tokenizer: str, length: int) -> dict[str, Tensor]:
    """The same as `input_ids`, with an `attention_mask` that is 1 where there is text and 0 where there is padding."""
    if tokenizer in OWN_TOKENIZERS:
        tokens = tokenise(texts, tokenizer, length)
        return {"input_ids": tokens, "attention_mask": (tokens != 0).long()}
    encoded = _encoded(texts, tokenizer, length)
    return {
        name: torch.tensor(encoded[name], dtype=torch.int64)
        for name in ("input_ids", "attention_mask")
        if name in encoded
    }


def _by_transformers(texts: Sequence[str], name: str, length: int) -> Tensor:
    return torch.tensor(_encoded(texts, name, length)["input_ids"], dtype=torch.int64)


@dataclass(frozen=True)
class Encoded:
    """Tokens of whole texts, and the one that ends a text."""

    rows: list[list[int]]
    end: int


def encode(texts: Sequence[str], tokenizer: str) -> Encoded:
    """Whole texts of any length. Our own tokenizers end a text with their padding, 0."""
    if tokenizer == "words":
        return Encoded([[_word_number(word) for word in WORD.findall(text.lower())] for text in texts], 0)
    if tokenizer == "bytes":
        return Encoded([list(text.encode(errors="surrogatepass")) for text in texts], 0)
    with _explained(tokenizer):
        found = _load_tokenizer(tokenizer)
        rows = found(list(texts), verbose=False)["input_ids"] if texts else []
    if found.eos_token_id is None:
        raise DataError(
            f"tokenizer={tokenizer}: has no end-of-text token, which packing puts between texts; need one that has, or "
            "pack=false"
        )
    return Encoded(rows, found.eos_token_id)


def _encoded(texts: Sequence[str], name: str, length: int) -> Any:
    with _explained(name):
        tokenizer = _load_tokenizer(name)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token  # As models without padding, such as GPT-2, are usually trained.
        return tokenizer(list(texts), truncation=True, padding="max_length", max_length=length)


def _load_tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Anything that the hub, a tokenizer file or its library may raise.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"tokenizer={name}: cannot be used ({reason}); need words, bytes, or the hub name or folder of a tokenizer"
        ) from error


def text_source(
    where: str, texts: Sequence[str], labels: Indices, classes: int | None, tokenizer: str, length: int
) -> Source:
    return Source(
        where,
        labels,
        lambda indices: tokenise([texts[position] for position in indices], tokenizer, length),
        classes=classes,
    )


def open_ag_news(folder: Path, *, tokenizer: str = "words", length: int = 128) -> tuple[Source, Source]:
    train, test = (_csv_source(folder / f"{split}.csv", tokenizer, length) for split in ("train", "test"))
    return train, test


def _csv_source(path: Path, tokenizer: str, length: int) -> Source:
    texts, labels = [], []
    try:
        for number, row in enumerate(csv.reader(read_text(path).splitlines(keepends=True), strict=True), 1):
            if len(row) != 3 or row[0] not in {str(label) for label in range(1, AG_NEWS_CLASSES + 1)}:
                if number == 1 and row[:1] and not row[0].isdigit():
                    continue  # Some copies have a header line.
                raise DataError(
                    f"{path}, row {number}: found {row[:1]} and {len(row)} columns; need class 1 to 4, title, text"
                )
            labels.append(int(row[0]) - 1)
            texts.append(f"{row[1]} {row[2]}")
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as rows of commas ({error})") from error
    return text_source(str(path), texts, np.array(labels, dtype=np.int64), AG_NEWS_CLASSES, tokenizer, length)

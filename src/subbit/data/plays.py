"""Shakespeare's plays by role, for next-character prediction (McMahan et al. 2017; 1,129 roles in LEAF).

The texts are Project Gutenberg's, <play>_gut.txt, as in the package `shakespeare` (folder shksprdata/texts). Those of
the First Folio, *_gut_f.txt, are the same plays in another spelling and are skipped. In these files a speech is

    HAMLET.                                   a separate line after an empty one; every word starts with a capital
    To be, or not to be,--that is ...         the lines up to the next name; [directions] in brackets are left out

The first four fifths of a role's speeches are for training and the rest for testing, so a role needs two. An example is
`length` characters and the one that follows, taken every `stride` characters. LEAF has stride=1: eight times as many
examples, each shifted by one character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source
from subbit.data.lookup import check_memory, read_text
from subbit.data.text import ALPHABET, character_numbers

SUFFIX = "_gut.txt"
DIRECTION = re.compile(r"^[ \t]*\[[^\[\]]{0,400}\][ \t.]*\n|\[[^\[\]]{0,400}\]", re.MULTILINE)
"""Includes the whole line if a direction has its own, so that a name and its speech stay together."""
NAME = re.compile(r"(?:(?:[A-Z0-9][\w'-]*|of|and|the|de|&)[.,]? )*[A-Z0-9][\w'-]*\.")
CAPITALS = re.compile(r"[A-Z][A-Z' -]{2,}")
"""One play has names without a full stop."""
NO_NAME = re.compile(r"(?:ACT|SCENE|PROLOGUE|EPILOGUE|INDUCTION|SONG|THE END)\b.*|[IVXL]+\.?", re.IGNORECASE)
LONGEST_NAME = 40

Speeches = dict[str, list[str]]
"""By role."""
Reader = Callable[[str], Iterator[tuple[str, str]]]
"""Of the text of a play: roles and their speeches."""
Windows = tuple[NDArray[np.uint8], Indices, list[str]]
"""All characters of a split, the starts of its windows, and their owners."""


def open_plays(folder: Path, *, length: int = 80, stride: int = 8) -> tuple[Source, Source]:
    splits = split_speeches(folder, find_plays(folder))
    train, test = ({role: "\n".join(lines) for role, lines in split.items()} for split in splits)
    return _source(f"{folder}, train", train, length, stride), _source(f"{folder}, test", test, length, stride)


def find_plays(folder: Path, suffix: str = SUFFIX) -> dict[str, Path]:
    """The file of each play by its name."""
    inner = folder / "shksprdata" / "texts"
    texts = sorted((inner if inner.is_dir() else folder).glob(f"*{suffix}"))
    return {path.name.removesuffix(suffix): path for path in texts}


def split_speeches(folder: Path, plays: dict[str, Path], read: Reader | None = None) -> tuple[Speeches, Speeches]:
    """The speeches of each role to train on, and those to test on."""
    speeches: Speeches = {}
    for play, path in plays.items():
        for role, speech in (read or read_speeches)(read_text(path)):
            speeches.setdefault(f"{play}/{role}", []).append(speech)
    roles = {role: lines for role, lines in sorted(speeches.items()) if len(lines) >= 2}
    if not roles:
        raise DataError(f"{folder}: found no role with two speeches in {len(plays)} texts; need plays, <play>{SUFFIX}")
    train, test = {}, {}
    for role, lines in roles.items():
        border = min(len(lines) - 1, -(-len(lines) * 4 // 5))
        train[role], test[role] = lines[:border], lines[border:]
    return train, test


def read_speeches(text: str) -> Iterator[tuple[str, str]]:
    """The role, in capitals, and the words of each speech of a play.

    >>> list(read_speeches("\\n1 Clown.\\nA pestilence\\non him! [Throws it.]\\n\\nHam.\\nThis?\\n\\nACT II.\\n"))
    [('1 CLOWN', 'A pestilence\\non him!'), ('HAM', 'This?')]
    """
    lines = [line.strip() for line in DIRECTION.sub("", text).splitlines()]
    role, speech = "", list[str]()
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        after = lines[number + 1] if number + 1 < len(lines) else ""
        heading = not before and bool(line)
        is_name = heading and bool(after) and len(line) <= LONGEST_NAME and not NO_NAME.fullmatch(line)
        is_name = is_name and bool(NAME.fullmatch(line) or CAPITALS.fullmatch(line))
        if is_name or (heading and NO_NAME.fullmatch(line)):
            if role and speech:
                yield role, "\n".join(speech)
            role, speech = (" ".join(line.rstrip(".").upper().split()) if is_name else ""), []
        elif role and line:
            speech.append(line)
    if role and speech:
        yield role, "\n".join(speech)


def _source(where: str, texts: dict[str, str], length: int, stride: int) -> Source:
    characters, starts, owners = _windows(texts, length, stride)

    def read(indices: Indices) -> Tensor:
        check_memory(len(indices), 8 * length, where, "?stride=80")
        windows = np.lib.stride_tricks.sliding_window_view(characters, length)
        return torch.from_numpy(windows[starts[indices]].astype(np.int64))

    labels = characters[starts + length].astype(np.int64)
    return Source(where, labels, read, owners, len(ALPHABET))


def _windows(texts: dict[str, str], length: int, stride: int) -> Windows:
    """No window crosses from one role into the next. A role with too few characters has no window."""
    numbers, starts, owners = [np.zeros(0, dtype=np.uint8)], [np.zeros(0, dtype=np.int64)], []
    offset = 0
    for role, text in texts.items():
        own = character_numbers(text)
        places = np.arange(0, len(own) - length, stride, dtype=np.int64)
        numbers.append(own)
        starts.append(places + offset)
        owners += [role] * len(places)
        offset += len(own)
    return np.concatenate(numbers), np.concatenate(starts), owners

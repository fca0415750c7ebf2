"""Texts of owners as rows of tokens for a language model.

Packed, the texts of an owner are one after the other, each followed by the end-of-text token, and cut into consecutive
rows: nothing is lost, and only the last row of an owner has padding. No row has texts of two owners. Otherwise a text
is a row, cut off at `length`. Padding has attention 0 and is no label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source
from subbit.data.lookup import check_memory
from subbit.data.text import Encoded, encode, tokenise_masked


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of a split, with the owner of each where it is known."""

    where: str
    texts: Sequence[str]
    owners: Sequence[str] | None = None

    def by_owner(self) -> dict[str, list[int]]:
        """Positions of each owner's texts, in their order; all texts where there are no owners."""
        positions: dict[str, list[int]] = {}
        for position, owner in enumerate(self.owners or [""] * len(self.texts)):
            positions.setdefault(owner, []).append(position)
        return positions


def pack(rows: Sequence[Sequence[int]], length: int, end: int) -> tuple[Tensor, Tensor]:
    """The tokens of one owner and their attention, int64 [n, length].

    >>> [part.tolist() for part in pack([[5, 6, 7], [8]], length=4, end=0)]
    [[[5, 6, 7, 0], [8, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 0, 0]]]
    """
    tokens = [token for row in rows for token in (row if row and row[-1] == end else [*row, end])]
    count = -(-len(tokens) // length)
    packed = torch.full((count * length,), end, dtype=torch.int64)
    packed[: len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
    attention = (torch.arange(count * length) < len(tokens)).long()
    return packed.view(count, length), attention.view(count, length)


def packed_source(split: Texts, tokenizer: str, length: int, notes: tuple[str, ...] = ()) -> Source:
    encoded: Encoded = encode(split.texts, tokenizer)
    check_memory(sum(map(len, encoded.rows)) // length + 1, 32 * length, split.where, "?length=64")
    tokens, attention, owners = [], [], list[str]()
    for owner, positions in split.by_owner().items():
        rows, masks = pack([encoded.rows[position] for position in positions], length, encoded.end)
        tokens.append(rows)
        attention.append(masks)
        owners += [owner] * len(rows)
    if not owners:
        raise DataError(f"{split.where}: found no texts; need at least one")
    all_tokens, all_attention = torch.cat(tokens), torch.cat(attention)

    def read(indices: Indices) -> dict[str, Tensor]:
        chosen = torch.from_numpy(indices)
        return {"input_ids": all_tokens[chosen], "attention_mask": all_attention[chosen]}

    # The objective takes the tokens themselves as labels.
    labels = np.zeros((len(owners), 0), dtype=np.int64)
    return Source(split.where, labels, read, None if split.owners is None else owners, notes=notes)


def rows_source(split: Texts, tokenizer: str, length: int, notes: tuple[str, ...] = ()) -> Source:
    """A text is a row."""

    def read(indices: Indices) -> dict[str, Tensor]:
        return tokenise_masked([split.texts[position] for position in indices], tokenizer, length)

    return Source(split.where, np.zeros((len(split.texts), 0), dtype=np.int64), read, split.owners, notes=notes)

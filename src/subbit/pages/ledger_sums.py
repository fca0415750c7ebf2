"""Bytes by round, direction and part, added up from `ledger.csv` line by line: it may have millions of them.

A line that a killed process left half-written is left out, and so is any that is damaged; both are told.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from subbit.wire.ledger import COLUMNS, HEADING

Key = tuple[str, str]
"""Direction and part."""


@dataclass
class LedgerSums:
    by_round: dict[int, dict[Key, int]] = field(default_factory=dict)
    """Bytes of the rounds of the main phase, without one-off costs."""
    once: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """Bytes of one-off costs by phase, direction and part."""
    left_out: int = 0
    """Lines that could not be read."""

    def parts(self, direction: str) -> list[str]:
        """The most expensive first."""
        totals: dict[str, int] = defaultdict(int)
        for sums in self.by_round.values():
            for (way, part), size in sums.items():
                if way == direction:
                    totals[part] += size
        return sorted(totals, key=lambda part: (-totals[part], part))


def read_ledger_sums(path: Path) -> LedgerSums | None:
    """None if there is no ledger."""
    found = LedgerSums()
    try:
        for row in _rows(path):
            if not _add(found, row):
                found.left_out += 1
    except FileNotFoundError:
        return None
    except (OSError, csv.Error, ValueError):
        found.left_out += 1
    return found


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open("rb") as file:
        if file.readline() != HEADING:
            raise ValueError("not a ledger")
        for line in file:
            if not line.endswith(b"\n"):
                yield []  # Cut off.
            else:
                yield from csv.reader([line.decode("utf-8", "replace")])


def _add(found: LedgerSums, row: list[str]) -> bool:
    if len(row) != len(COLUMNS):
        return False
    phase, round_number, _, direction, part, _, size, one_off = row
    if (
        direction not in ("up", "down")
        or one_off not in ("0", "1")
        or not (size.isdecimal() and round_number.isdecimal())
    ):
        return False
    if phase == "main" and one_off == "0":
        sums = found.by_round.setdefault(int(round_number), {})
        sums[direction, part] = sums.get((direction, part), 0) + int(size)
    else:
        key = (phase, direction, part)
        found.once[key] = found.once.get(key, 0) + int(size)
    return True

"""Byte ledger: one entry per frame and client, with the measured length of the frame.

There are three separate sums: uplink of the rounds, downlink of the rounds, and one-off costs in either direction (the
head phase, a structure sent once). Bits per parameter are 8 * bytes / (size * client turns), where a client turn is one
client that trains in one round. A broadcast counts once for every client that receives it, also if it is only asked for
its loss. The ledger contains no timings, so two runs of one job write the same file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Literal, cast

from subbit.core.errors import ConfigError, RunFolderError
from subbit.core.files import replace_file

Phase = Literal["head", "main"]
Way = Literal["up", "down"]
LOSS = "loss"
"""The part that clients upload when they are asked for their loss."""


@dataclass(frozen=True)
class Entry:
    """One frame. The fields are in sort order of the file: the head phase, then rounds, then clients."""

    phase: Phase
    round_number: int
    client: int
    direction: Way
    part: str
    """What the frame carries, e.g. "theta", "flips", "head"."""
    codec: str
    frame_bytes: int
    one_off: bool

    def __post_init__(self) -> None:
        if self.phase not in ("head", "main") or self.direction not in ("up", "down"):
            raise ConfigError(f"phase is head or main, direction up or down, not {self.phase!r}, {self.direction!r}")
        if min(self.round_number, self.client, self.frame_bytes) < 0:
            raise ConfigError("round, client and bytes of a ledger entry are not negative")

    @property
    def recurring(self) -> bool:
        """Whether the frame belongs to the rounds and counts for the bits per parameter."""
        return self.phase == "main" and not self.one_off


@dataclass(frozen=True)
class Totals:
    uplink_bytes: int
    downlink_bytes: int
    one_off_bytes: int
    uploads: int
    """Client turns with an upload: distinct (round, client) of the main phase."""
    downloads: int

    @property
    def total_bytes(self) -> int:
        return self.uplink_bytes + self.downlink_bytes + self.one_off_bytes

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Totals)))


NOTHING = Totals(0, 0, 0, 0, 0)

COLUMNS = tuple(field.name for field in fields(Entry))
_columns_of = attrgetter(*COLUMNS)


HEADING = (",".join(COLUMNS) + "\n").encode()


def csv_lines(entries: Iterable[Entry]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for *columns, one_off in map(_columns_of, entries):
        writer.writerow([*columns, int(one_off)])
    return text.getvalue().encode()


class Ledger:
    """Entries in any order. All reports are independent of that order.

    For finished rounds it keeps only the totals (`take`), so its memory and run time do not grow with the number of
    rounds.
    """

    def __init__(self, entries: Iterable[Entry] = (), before: Totals = NOTHING) -> None:
        """`before` are the totals of earlier rounds whose entries are stored elsewhere."""
        self._entries, self._before = list(entries), before

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def take(self) -> list[Entry]:
        """Remove and return the entries in file order. The ledger keeps their totals. Later entries are of later
        rounds.
        """
        self._before, entries = self.totals, sorted(self._entries, key=_columns_of)
        self._entries = []
        return entries

    @property
    def totals(self) -> Totals:
        uplink = self._recurring("up")
        downlink = self._recurring("down")
        turns = _client_turns([entry for entry in uplink if entry.part != LOSS])
        by_loss = {entry.round_number for entry in uplink if entry.part == LOSS}
        received = _client_turns(downlink)
        return self._before + Totals(
            uplink_bytes=sum(entry.frame_bytes for entry in uplink),
            downlink_bytes=sum(entry.frame_bytes for entry in downlink),
            one_off_bytes=sum(entry.frame_bytes for entry in self._entries if not entry.recurring),
            # Clients that were only asked for their loss, for choosing participants, had no turn. Their bytes, both
            # ways, count towards those that had.
            uploads=len(turns),
            downloads=len({turn for turn in received if turn[0] not in by_loss or turn in turns}),
        )

    def uplink_bpp(self, size: int) -> float:
        """Mean bits per parameter that one client sends in one round; 0 if nothing was sent."""
        totals = self.totals
        return _bits_per_parameter(totals.uplink_bytes, size, totals.uploads)

    def downlink_bpp(self, size: int) -> float:
        """Mean bits per parameter that one client receives in one round; 0 if nothing was sent."""
        totals = self.totals
        return _bits_per_parameter(totals.downlink_bytes, size, totals.downloads)

    def bytes_through(self, round_number: int) -> int:
        """All bytes in both directions, one-off costs included, up to the end of that round."""
        return self.truncated(round_number).totals.total_bytes

    def truncated(self, round_number: int) -> Ledger:
        """The ledger at the end of that round. The head phase comes before all rounds and is kept."""
        return Ledger(entry for entry in self._entries if entry.phase == "head" or entry.round_number <= round_number)

    def write_csv(self, path: Path) -> None:
        replace_file(path, HEADING + csv_lines(sorted(self._entries, key=_columns_of)))

    @classmethod
    def read_csv(cls, path: Path) -> Ledger:
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise RunFolderError(f"cannot read the ledger {path}: {error}") from error
        if not rows or tuple(rows[0]) != COLUMNS:
            raise RunFolderError(f"{path} is not a ledger: its first line must be {','.join(COLUMNS)}")
        return cls(_parse_row(row, path, line) for line, row in enumerate(rows[1:], start=2))

    def _recurring(self, direction: Way) -> list[Entry]:
        return [entry for entry in self._entries if entry.recurring and entry.direction == direction]


def _client_turns(entries: list[Entry]) -> set[tuple[int, int]]:
    return {(entry.round_number, entry.client) for entry in entries}


def _bits_per_parameter(total_bytes: int, size: int, turns: int) -> float:
    return 8 * total_bytes / (size * turns) if size and turns else 0.0


def _parse_row(row: list[str], path: Path, line: int) -> Entry:
    try:
        phase, round_number, client, direction, part, codec, frame_bytes, one_off = row
        return Entry(
            phase=cast(Phase, phase),
            round_number=int(round_number),
            client=int(client),
            direction=cast(Way, direction),
            part=part,
            codec=codec,
            frame_bytes=int(frame_bytes),
            one_off=bool(("0", "1").index(one_off)),
        )
    except (ValueError, ConfigError) as error:
        raise RunFolderError(f"{path}, line {line} is damaged: {error}") from None

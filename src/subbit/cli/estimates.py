"""How long a run still takes and what it will still send, from the rounds done so far. Estimates, shown as "about"."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subbit.runtime.run import Progress

REMEMBERED = 10


class Estimate:
    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._count = 0
        self.last: Progress | None = None

    def add(self, progress: Progress) -> None:
        self._count += 1
        if self._count == 2:
            self._seconds.clear()  # The first round of a process compiles, starts workers and fills caches.
        self._seconds.append(progress.seconds)
        self.last = progress

    @property
    def rounds_left(self) -> int:
        return 0 if self.last is None else self.last.rounds - self.last.round_number - 1

    def seconds_left(self) -> float | None:
        """As long as the last rounds took, for each that is left."""
        return self.rounds_left * sum(self._seconds) / len(self._seconds) if self._seconds else None

    def bytes_in_all(self) -> float | None:
        """What was sent, and for each round that is left as much as the mean of those done. One-off costs are past."""
        if self.last is None:
            return None
        return self.last.total_bytes + self.rounds_left * self.last.sent_bytes / (self.last.round_number + 1)


def clock(seconds: float) -> str:
    """E.g. 0:07, 12:30, 3:05:00."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def megabytes(count: float) -> str:
    """Three digits that count: 0.012, 1.23, 45.6, 7890."""
    size = count / 1e6
    return f"{size:.{3 if size < 0.1 else 2 if size < 10 else 1 if size < 100 else 0}f} MB"


def told(estimate: Estimate) -> str:
    """The last round in words, and what is still to come."""
    last = estimate.last
    if last is None:
        return ""
    score = "" if last.score is None else f"{last.score_name} {last.score:.4f}, "
    sent = megabytes(last.total_bytes)
    seconds, in_all = estimate.seconds_left(), estimate.bytes_in_all()
    if estimate.rounds_left and seconds is not None and in_all is not None:
        return f"{score}{sent} of about {megabytes(in_all)}, about {clock(seconds)} left"
    return f"{score}{sent}"

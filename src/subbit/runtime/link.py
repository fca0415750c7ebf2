"""Transmission time of a run on a given link, from its ledger.

Clients of a round work in parallel, each on its own link; a round waits for its slowest client; the server's bandwidth
is not a limit. A client's messages in one direction are sent one after another:

    seconds(round) = max over clients of (latency + 8 bytes down / rate) + (latency + 8 bytes up / rate)

where a direction without messages takes no time. Training time is not included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from subbit.wire.ledger import Entry

BITS_PER_MEGABIT = 1e6
SECONDS_PER_HOUR = 3600.0


def link_seconds(entries: Iterable[Entry], megabits_per_second: float, latency_milliseconds: float = 0.0) -> float:
    """Transmission time of the rounds in these entries, one-off costs included."""
    sent: dict[tuple[str, int], dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for entry in entries:
        sent[entry.phase, entry.round_number][entry.client][entry.direction] += entry.frame_bytes
    rate, latency = megabits_per_second * BITS_PER_MEGABIT, latency_milliseconds / 1000
    return sum(
        max(sum(latency + 8 * size / rate for size in directions.values()) for directions in clients.values())
        for clients in sent.values()
    )

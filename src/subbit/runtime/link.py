"""How long the messages of a run take on a given link: the ledger, turned into hours.

Clients of one round work side by side, each on a link of its own; a round waits for its slowest client; the server's
side is taken to be wide enough. A client's messages of one direction go one after another:

    seconds(round) = max over clients of (latency + 8 bytes down / rate) + (latency + 8 bytes up / rate)

where a direction in which nothing is sent takes no time. Training is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from subbit.wire.ledger import Entry

BITS_PER_MEGABIT = 1e6
SECONDS_PER_HOUR = 3600.0


def link_seconds(entries: Iterable[Entry], megabits_per_second: float, latency_milliseconds: float = 0.0) -> float:
    """Seconds that the rounds of these entries, one-off costs included, spend on the wire."""
    sent: dict[tuple[str, int], dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for entry in entries:
        sent[entry.phase, entry.round_number][entry.client][entry.direction] += entry.frame_bytes
    rate, latency = megabits_per_second * BITS_PER_MEGABIT, latency_milliseconds / 1000
    return sum(
        max(sum(latency + 8 * size / rate for size in directions.values()) for directions in clients.values())
        for clients in sent.values()
    )

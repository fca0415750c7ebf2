"""Seconds on a link, by hand."""

from __future__ import annotations

from subbit.runtime.link import link_seconds
from subbit.wire.ledger import Entry


def entry(number: int, client: int, direction: str, size: int, phase: str = "main", one_off: bool = False) -> Entry:
    return Entry(phase, number, client, direction, "part", "dense", size, one_off)  # type: ignore[arg-type]


def test_two_rounds_by_hand() -> None:
    """On 8 Mbit/s a megabyte takes a second; every message direction of a client costs 0.5 s of latency.

    head      client 0: up 1 MB                                 0.5 + 1               = 1.5 s
    round 0   client 0: down 1 MB + 1 MB (head), up 1 MB        0.5 + 2 + 0.5 + 1     = 4 s
              client 1: down 1 MB, up 5 MB                      0.5 + 1 + 0.5 + 5     = 7 s, and the round waits
    round 1   client 1: down 1 MB, no answer                    0.5 + 1               = 1.5 s
                                                                                 sum   10 s
    """
    megabyte = 1_000_000
    entries = [
        entry(0, 0, "up", megabyte, "head", True),
        entry(0, 0, "down", megabyte),
        entry(0, 0, "down", megabyte, one_off=True),
        entry(0, 0, "up", megabyte),
        entry(0, 1, "down", megabyte),
        entry(0, 1, "up", 5 * megabyte),
        entry(1, 1, "down", megabyte),
    ]
    assert abs(link_seconds(entries, 8.0, 500.0) - 10.0) < 1e-9
    # A run adds up its rounds one by one.
    rounds = [[each for each in entries if (each.phase, each.round_number) == at] for at in (("head", 0), ("main", 0))]
    assert [link_seconds(each, 8.0, 500.0) for each in rounds] == [1.5, 7.0]


def test_twice_the_bandwidth_halves_it_without_latency() -> None:
    entries = [entry(0, client, "up", 1000 + client) for client in range(3)]
    assert link_seconds(entries, 10.0) == 2 * link_seconds(entries, 20.0) == 8 * 1002 / 1e7


def test_nothing_sent_takes_no_time() -> None:
    assert link_seconds([], 1.0, 100.0) == 0.0

"""Floors and ceilings of a comparison, as contenders: other methods with a few keys set.

    head-alone     the closed-form head on the frozen features (`head=lda`), no training at all
    probe-alone    from that head on, only the head is trained over the rounds; converged where rounds are many, and
                   cheap, since frozen layers run once per example. Its bytes are real
    central        all clients' examples in one place (`pooled`), all weights trained with as many rounds of as many
                   epochs. With participation below 1 that is more steps than the clients make together
    start          the network as it is, for objectives without a classifier
    standalone     every client alone: a method of its own, the floor where networks are personal

A rate for `central` is not chosen here: name it several times with several rates, the best one is the ceiling. That
is a choice by the test set in favour of the ceiling, so shares of the gap are rather too small than too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subbit.core.errors import ConfigError
from subbit.report.gap import Gap, Level, best

BASELINES = {
    "head-alone": "fedavg:select=head,head=lda,rounds=0",
    "probe-alone": "fedavg:select=head,head=lda",
    "central": "fedavg:select=all,pooled=true,participation=1,selection=uniform,evaluate=global",
    "start": "fedavg:head=keep,rounds=0",
}
FLOORS = ("head-alone", "probe-alone", "start", "standalone")
"""What they reach needs no federation of the features."""
CEILING = "central"
CENTRAL_RATES = ("0.001", "0.0003", "0.0001")


def expand(text: str) -> str:
    """A contender with the name of a baseline replaced by what it stands for; other contenders as they are.

    >>> expand("central:learning_rate=0.1").removeprefix(BASELINES["central"])
    ',learning_rate=0.1'
    """
    name, _, words = text.partition(":")
    if name not in BASELINES:
        return text
    return BASELINES[name] + (f",{words}" if words else "")


def kind(label: str) -> str | None:
    """Which baseline a label is; none for methods that compete."""
    name = label.partition(":")[0]
    return name if name in (*FLOORS, CEILING) else None


def added(personal: bool, has_head: bool) -> list[str]:
    """The baselines of a comparison."""
    floors = ["head-alone", "probe-alone"] if has_head else ["start"]
    central = [f"{CEILING}:learning_rate={rate}" for rate in CENTRAL_RATES]
    return [*floors, *(["standalone"] if personal else []), *central]


def find_gap(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Gap | None:
    """The gap between the best floor and the best ceiling of these summaries by label; none if one is missing."""
    if not rows or not all(rows.values()):
        return None
    first = next(iter(rows.values()))[0]
    name, higher = str(first["score_name"]), bool(first.get("higher_is_better", True))
    found: dict[bool, list[Level]] = {False: [], True: []}
    for label, summaries in rows.items():
        if kind(label) is not None:
            if summaries[0]["score_name"] != name:
                raise ConfigError(f"{label} is scored by {summaries[0]['score_name']}, others by {name}")
            levels = Level.of([float(summary["score"]) for summary in summaries], name)
            found[kind(label) == CEILING].append(levels)
    if not all(found.values()):
        return None
    return Gap(best(found[False], higher), best(found[True], higher), name, higher)

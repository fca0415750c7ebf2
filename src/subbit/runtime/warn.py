"""Warnings that help: what looks wrong about a finished run, the likely cause and the key to change.

They are facts of the run's own events, with margins for the noise of a small test set: a warning that is often wrong is
not read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from subbit.runtime.events import Before, Event, MainRound
from subbit.runtime.results import Advice

WORSE = 0.05
"""Relative change of a score that is more than noise."""
SAME = 0.01
"""Relative change of the loss below which a score did not move."""
ROUNDS = 3
"""Fewer evaluations say nothing about a score that does not move."""
EXPLODED = 10.0
"""Times the median of the others' losses, or the client's first one."""
OTHERS = 3
FAILED = 0.25
"""Share of client turns."""
KEYS = {"training": "learning_rate", "deadline": "deadline", "died": "workers", "step": "learning_rate"}
"""Keys to change, by the cause of a failure."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the events do not say."""

    score_name: str
    higher_is_better: bool
    after: float
    tested: int
    """Number of test examples."""
    chance: float | None = None
    """Accuracy of guessing, for classification."""
    untrained_head: str | None = None
    """Name of a head that no phase of the run trains."""
    head: str = "keep"
    learning_rate: float | None = None
    server_rate: float | None = None
    nobody_counts: bool = False
    """No client has two classes, and with `calibrate` the changes of such clients do not count."""
    few_classes: bool = False
    """Most clients have at most half of the classes, and learn their own mix of them: `calibrate=false`."""


def find_warnings(setting: Setting, events: list[Event]) -> tuple[Advice, ...]:
    found = (_untrained_head, _worse, _unmoved, _exploded, _failing)
    return tuple(advice for rule in found for advice in rule(setting, events))


def _worse(setting: Setting, events: list[Event]) -> Iterator[Advice]:
    before, after, name = _before(events).score, setting.after, setting.score_name
    lost = before - after if setting.higher_is_better else after - before
    if lost <= max(WORSE * abs(before), _noise(setting)):
        return
    told = f"{name} {'fell' if setting.higher_is_better else 'rose'} from {before:.4g} to {after:.4g}"
    better = max if setting.higher_is_better else min
    scores = {event.round: event.score for event in _rounds(events) if event.score is not None}
    best = better(scores, key=lambda number: scores[number], default=None)
    if best is not None and best + 1 < len(_rounds(events)) and better(scores[best], before) != before:
        told += f", after {scores[best]:.4g} in round {best}"
    rates = {"server_rate": setting.server_rate, "learning_rate": setting.learning_rate}
    tries = " or ".join(f"{key}={rate / 10:.1g}" for key, rate in rates.items() if rate) or "a smaller learning_rate"
    first = next((key for key, rate in rates.items() if rate), "learning_rate")
    if setting.few_classes:
        reason = "clients have few of the classes each and forget the others, or the steps are too large"
        yield Advice(f"{told}: {reason}; try calibrate=true, or {tries}", "calibrate")
    else:
        yield Advice(f"{told}: the steps are too large for this network; try {tries}", first)


def _unmoved(setting: Setting, events: list[Event]) -> Iterator[Advice]:
    """Neither the score nor, if there is one, the loss on the test set."""
    before, scored = _before(events), [event for event in _rounds(events) if event.score is not None]
    perfect = setting.chance is not None and before.score == 1.0
    if len(scored) < ROUNDS or perfect or any(event.score != before.score for event in scored):
        return
    start = before.scores.get("loss", 0.0)
    if any(abs((event.scores or {}).get("loss", start) - start) > SAME * abs(start) for event in scored):
        return
    told = f"{setting.score_name} is {before.score:.4g} before the first round and after every one"
    if setting.nobody_counts:
        yield Advice(f"{told}: no client has two classes, so that no change counts; try calibrate=false", "calibrate")
        return
    rate = setting.learning_rate
    yield Advice(
        f"{told}: the steps are too small, or what is trained does not reach the outputs; try "
        f"{'a larger learning_rate' if not rate else f'learning_rate={rate * 10:.1g}'} or another select",
        "learning_rate",
    )


def _untrained_head(setting: Setting, events: list[Event]) -> Iterator[Advice]:
    """One that guesses at first. A head that knows its classes need not be trained."""
    start = _before(events).score
    if setting.untrained_head is None or setting.chance is None or start > setting.chance + _noise(setting):
        return
    which = "random" if setting.head == "kaiming" else "the module's own"
    yield Advice(
        f"the head {setting.untrained_head!r} was never trained: it is {which} (head={setting.head}) and guesses at "
        f"the start ({setting.score_name} {start:.4g}); try head=lda or head=probe, or select it too",
        "head",
    )


def _exploded(setting: Setting, events: list[Event]) -> Iterator[Advice]:
    """The client whose loss is the furthest from the others' or from its own first one."""
    first: dict[int, float] = {}
    found: list[tuple[float, int, float, str]] = []
    # Clients of few examples have losses of all sizes near zero; one below that of guessing did not explode.
    guessing = 0.0 if setting.chance is None else -math.log(setting.chance)
    for event in _rounds(events):
        losses = event.losses or {}
        for client, loss in losses.items():
            own = first.setdefault(client, loss)
            if loss <= guessing:
                continue
            others = [each for who, each in losses.items() if who != client]
            usual = median(others) if len(others) >= OTHERS else math.nan
            # Far above the others, and not because the others have nearly nothing left to learn.
            if usual > 0 and loss > EXPLODED * max(usual, median(first.values())):
                found.append((loss / usual, client, loss, f"while the others' is {usual:.3g}"))
            if own > 0 and loss > EXPLODED * own:
                found.append((loss / own, client, loss, f"after {own:.3g} in its first round"))
    if found:
        _, client, loss, told = max(found)
        yield Advice(
            f"the training loss of client {client} is {loss:.3g} {told}: look at its data, or try gradient_clip=1 or "
            "a smaller learning_rate",
            "gradient_clip",
        )


def _failing(setting: Setting, events: list[Event]) -> Iterator[Advice]:
    """Many failures, or a client that never answered, of one cause."""
    rounds = [event for event in events if not isinstance(event, Before)]
    failures = [failure for event in rounds for failure in event.failures]
    causes = {failure.cause for failure in failures}
    turns = Counter(client for event in rounds for client in event.participants)
    by_client = Counter(failure.client for failure in failures)
    never = sorted(client for client, times in by_client.items() if times >= turns[client] > 1)
    if len(causes) != 1 or not (never or len(failures) > FAILED * sum(turns.values())):
        return
    (cause,) = causes
    who = f"client{'s' * (len(never) > 1)} {', '.join(map(str, never[:5]))} never answered" if never else "often"
    key = KEYS.get(cause, "quorum")
    yield Advice(
        f"{len(failures)} of {sum(turns.values())} client turns failed, all for one cause ({who}): {cause}: "
        f"{failures[0].message}",
        key,
    )


def _before(events: list[Event]) -> Before:
    return next(event for event in events if isinstance(event, Before))


def _rounds(events: list[Event]) -> list[MainRound]:
    return [event for event in events if isinstance(event, MainRound)]


def _noise(setting: Setting) -> float:
    """Twice the standard error of the difference of two accuracies; other scores have margins of their own."""
    return math.sqrt(2.0 / max(1, setting.tested)) if setting.chance is not None else 0.0

"""The numbers of an event: flat records, for tables and for trackers."""

from __future__ import annotations

from typing import Any

from subbit.runtime.events import Before, Event, MainRound


def flat_round(event: MainRound) -> dict[str, Any]:
    """All numbers of a round by name; none where a round was not evaluated."""
    return {
        "round": event.round,
        "score": event.score,
        **(event.scores or {}),
        "uplink_bytes": event.uplink_bytes,
        "downlink_bytes": event.downlink_bytes,
        "total_bytes": event.total_bytes,
        "seconds": event.seconds,
        "answered": event.answered,
        "failures": len(event.failures),
        **{f"train_{name}": value for name, value in event.observations.items()},
    }


def step_of(event: Event) -> int:
    """How many rounds were finished when it happened: 0 for the head phase and `before`."""
    return event.round + 1 if isinstance(event, MainRound) else 0


def metrics_of(event: Event) -> dict[str, float]:
    """The numbers that a tracker draws over the steps."""
    if isinstance(event, Before):
        return {"score": event.score, **event.scores}
    if isinstance(event, MainRound):
        numbers = {**flat_round(event), "uplink_bpp": event.uplink_bpp}
        return {name: float(value) for name, value in numbers.items() if value is not None and name != "round"}
    return {"head_seconds": event.seconds, "head_failures": float(len(event.failures))}


def numbers_of(summary: dict[str, Any]) -> dict[str, float]:
    """The single numbers of a summary, e.g. `score` and `scores.loss`."""
    flat: dict[str, float] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": number for key, number in numbers_of(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[name] = float(value)
    return flat

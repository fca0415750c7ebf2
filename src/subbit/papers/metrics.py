"""What of a run is compared with a printed value, by the names that protocols use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Run = Mapping[str, Any]
FLOAT_BYTES = 4
NEAR_PEAK = 0.99


def _points(key: str) -> Callable[[Run], float | None]:
    return lambda run: None if run.get(key) is None else 100 * float(run[key])


def _plain(key: str) -> Callable[[Run], float | None]:
    return lambda run: None if run.get(key) is None else float(run[key])


def _times_less(key: str) -> Callable[[Run], float | None]:
    """Than all weights as floats, for every participant in every round."""

    def found(run: Run) -> float | None:
        sent = run.get(key)
        return float(FLOAT_BYTES * run["parameters"] * run["participants"] * run["rounds"] / sent) if sent else None

    return found


def _volume(run: Run) -> float | None:
    """Megabytes sent up until the score is within 1% of the best one of the run."""
    scores = [score for score in run.get("score_by_round", []) if score is not None]
    if not scores or not run.get("rounds"):
        return None
    reached = next(
        place
        for place, score in enumerate(run["score_by_round"], 1)
        if score is not None and score >= NEAR_PEAK * max(scores)
    )
    return float(run["uplink_bytes"]) * reached / float(run["rounds"]) / 1e6


def _gap(run: Run) -> float | None:
    """What is lost when the expected network is replaced by a sampled one."""
    both = run.get("score_expected"), run.get("score_sampled")
    return None if None in both else 100 * (float(both[0] or 0) - float(both[1] or 0))


METRICS: dict[str, Callable[[Run], float | None]] = {
    "accuracy": _points("score"),
    "expected": _points("score_expected"),
    "sampled": _points("score_sampled"),
    "discretised": _points("score_thresholded"),
    "bpp": _plain("uplink_bpp"),
    "down_bpp": _plain("downlink_bpp"),
    "parameters": _plain("parameters"),
    "bytes": _plain("total_bytes"),
    "up_bytes": _plain("uplink_bytes"),
    "savings_up": _times_less("uplink_bytes"),
    "savings_down": _times_less("downlink_bytes"),
    "volume": _volume,
    "seconds": _plain("cpu"),
    "gap": _gap,
    "sensitivity": _plain("sensitivity"),
    "deviation": _plain("deviation"),
}
UNITS = {"bpp": "bits per parameter, up", "down_bpp": "bits per parameter, down", "bytes": "bytes, both ways"}
UNITS |= {
    "savings_up": "times less, up",
    "savings_down": "times less, down",
    "volume": "MB up to 99% of the best score",
}
UNITS |= {"seconds": "CPU seconds", "accuracy": "% correct", "expected": "% correct, expected network"}
UNITS |= {"sampled": "% correct, mean of sampled networks", "discretised": "% correct, p rounded"}

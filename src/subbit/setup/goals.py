"""Which method for which goal. The one place of this choice; docs/flagship.md says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GOALS = {
    "bytes": "the fewest bytes between clients and server",
    "score": "the best score",
    "personal": "a network of its own for every client",
}


@dataclass(frozen=True)
class Choice:
    method: str
    keys: dict[str, Any]
    why: str


_ONE_BIT = {"codec": "eden", "bits": 1.0, "down_codec": "eden", "down_bits": 1.0}
_FEW = Choice("subbit", {}, "a few values move all weights, one bit each, both ways; bytes = 600 would be a budget")
_ALL = Choice("fedavg", {"select": "all", **_ONE_BIT}, "all weights are trained; changes at one bit each, both ways")
# Small and careful steps, where a pre-trained network starts from a head that already fits.
_CAREFUL = {"guard": True, "schedule": "cosine"}
_FINE = Choice(_ALL.method, {**_ALL.keys, "learning_rate": 1e-4, **_CAREFUL}, _ALL.why)
_LAST = Choice("lg-fedavg", {}, "each client keeps its lower layers; the last two are trained together")
_FINE_LAST = Choice(_LAST.method, {"learning_rate": 1e-4, "guard": True}, _LAST.why)
_MASKS = Choice("fedmask", {}, "each client has a sparse mask of its own, which subbit export --shrink makes small")


def choose(goal: str, *, pretrained: bool, has_classes: bool, is_bundled_small: bool) -> Choice:
    """`pretrained`: a transformer with weights that are worth keeping."""
    if goal == "personal":
        return _FINE_LAST if pretrained else _MASKS if is_bundled_small and has_classes else _LAST
    if goal == "bytes" and pretrained:
        return _FEW
    return _FINE if pretrained else _ALL

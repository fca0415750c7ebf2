"""Which method for which goal. The one place of this choice; docs/frontier.md says why."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
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
# A pre-trained network starts from a head that already fits, and few examples are enough to spoil it. With the guard
# every proposal ended at its start or above it, without it most of them below (docs/command-line.md).
_GUARD = {"guard": True}
_GUARDED = "; a step that would raise a client's own loss is made smaller (guard)"
_LORA = Choice(
    "fedpeft", {"tuning": "lora", **_ONE_BIT, **_GUARD}, f"LoRA, one bit per trained parameter each way{_GUARDED}"
)
_BIAS = Choice(
    "fedpeft",
    {"tuning": "bias", **_ONE_BIT, **_GUARD},
    f"biases, one bit per trained parameter each way{_GUARDED}; with pip install 'subbit[peft]' try tuning = \"lora\"",
)
_ALL = Choice("fedavg", {"select": "all", **_ONE_BIT}, "all weights are trained; changes at one bit each, both ways")
# Small steps, too.
_FINE = Choice(_ALL.method, {**_ALL.keys, "learning_rate": 1e-4, **_GUARD}, _ALL.why + _GUARDED)
_LAST = Choice("lg-fedavg", {}, "each client keeps its lower layers; the last two are trained together")
_FINE_LAST = Choice(_LAST.method, {"learning_rate": 1e-4, **_GUARD}, _LAST.why + _GUARDED)
_MASKS = Choice("fedmask", {}, "each client has a sparse mask of its own, which subbit export --shrink makes small")


def choose(goal: str, *, pretrained: bool, has_classes: bool, is_bundled_small: bool) -> Choice:
    """`pretrained`: a transformer with weights that are worth keeping."""
    if goal == "personal":
        return _FINE_LAST if pretrained else _MASKS if is_bundled_small and has_classes else _LAST
    if goal == "bytes" and pretrained:
        return _LORA if find_spec("peft") is not None else _BIAS
    return _FINE if pretrained else _ALL

"""Two small files beside the events: who holds what (`split.json`), and what became of each layer (`layers.json`).

docs/results.md and its JSON schema are generated from these classes (scripts/results_schema.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from subbit.data.split_summary import SplitSummary


@dataclass(frozen=True, kw_only=True)
class Split:
    """The contents of `split.json`: how many examples each client holds. Nodes with data of their own do not say."""

    schema: Literal[1] = 1
    """Version of this format."""
    fingerprint: str
    """Fingerprint of the assignment of examples to clients, as in the summary."""
    sizes: tuple[int, ...]
    """Number of training examples of each client, in the order of the clients."""
    classes: int | None = None
    """Number of classes; only for classification."""
    held: tuple[dict[str, int], ...] | None = None
    """For each client, how many examples it holds of each class that it has, by number of the class; only for
    classification."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes, in the order of their numbers; only where the files name them."""

    @classmethod
    def of(cls, summary: SplitSummary) -> Split | None:
        """None where the server does not know what clients hold."""
        if not summary.sizes:
            return None
        held = tuple({str(each): count for each, count in own.items()} for own in summary.held) or None
        return cls(
            fingerprint=summary.fingerprint,
            sizes=tuple(summary.sizes),
            classes=summary.classes if held else None,
            held=held,
            class_names=summary.class_names if held else None,
        )


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One trained tensor of the network."""

    name: str
    """Name of the tensor in the module."""
    size: int
    """Number of its values."""
    density: float | None = None
    """Masks: share of its weights that the mask keeps."""
    flips: float | None = None
    """Masks: share of its weights that are kept now and were not at the start, or the other way round."""
    change: float | None = None
    """Other methods: length of the change since the start, divided by the length at the start. Missing where all values
    were zero at the start."""


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The contents of `layers.json`: what became of each trained tensor. Not for methods with personal networks."""

    schema: Literal[1] = 1
    """Version of this format."""
    kind: Literal["mask", "change"]
    """Whether the method trains a mask or values."""
    network: str
    """Which of the method's networks this is about: of masks that are drawn, the likeliest one."""
    layers: tuple[Layer, ...]
    """The trained tensors, in the order of the module."""

"""Summary of a split, to check whether two people ran the same one.

C_p (`coverage`) is the mean over clients of the fraction of all classes that a client holds (Tsouvalas et al.,
DeltaMask: about 1.0 for Dirichlet(10), about 0.2 for Dirichlet(0.1)). A client without data counts as 0.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class SplitSummary:
    clients: int
    examples: int
    sizes: list[int]
    classes_per_client: list[int]
    """Empty where examples have no classes."""
    coverage: float
    empty: int
    fingerprint: str
    """16 hex digits of SHA-256 over each client's count and ascending positions, as little-endian 64-bit integers."""

    classes: int = 0
    held: tuple[dict[int, int], ...] = ()
    """For each client, its number of examples of each class that it has; empty where examples have no classes."""
    notes: tuple[str, ...] = ()
    """Lines on how the files were read."""
    class_names: tuple[str, ...] | None = None

    def as_text(self) -> str:
        sizes, held = self.sizes, self.classes_per_client
        return "\n".join(
            [
                f"clients      {self.clients} ({self.empty} empty)",
                f"examples     {self.examples}",
                f"per client   {min(sizes)} / {median(sizes):g} / {max(sizes)} examples (min / median / max)",
                *(
                    [f"             {min(held)} / {median(held):g} / {max(held)} classes, C_p = {self.coverage:.3f}"]
                    if held
                    else []
                ),
                *self.notes,
                f"fingerprint  {self.fingerprint}",
            ]
        )


def summarise_split(labels: Tensor | None, parts: list[NDArray[np.int64]], classes: int) -> SplitSummary:
    """`parts` holds the positions of each client in `labels`, as `partition` returns them."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(np.sort(part).astype("<i8").tobytes())
    sizes = [len(part) for part in parts]
    counts = () if labels is None else tuple(_counted(labels.numpy()[part]) for part in parts)
    held = [len(own) for own in counts]
    return SplitSummary(
        clients=len(parts),
        examples=sum(sizes),
        sizes=sizes,
        classes_per_client=held,
        coverage=sum(held) / (len(parts) * classes),
        empty=sizes.count(0),
        fingerprint=digest.hexdigest()[:16],
        classes=classes,
        held=counts,
    )


def _counted(labels: NDArray[Any]) -> dict[int, int]:
    found, counts = np.unique(labels, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))

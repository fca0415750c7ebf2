"""One class per example, or several labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from subbit.core.errors import DataError, ModelError
from subbit.data.examples import Examples
from subbit.data.form import TensorForm
from subbit.data.needs import LabelKind
from subbit.objectives.objective import Objective, Sums, logits_of, wide


class Classification(Objective):
    """Cross entropy; the score is the accuracy.

    Labels: int64 [n], the class of each example.
    """

    name: ClassVar[str] = "classification"
    counts_classes: ClassVar[bool] = True
    labels_are_classes: ClassVar[bool] = True
    label_kind: ClassVar[LabelKind] = "class"

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        return functional.cross_entropy(logits_of(outputs), batch.labels)

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        logits = logits_of(outputs)
        right = wide(logits.argmax(dim=1) == batch.labels)
        losses = wide(functional.cross_entropy(logits, batch.labels, reduction="none"))
        return torch.stack([right, torch.ones_like(right), losses], dim=1)

    def scores(self, sums: Sums) -> dict[str, float]:
        right, count, loss = sums
        return {"accuracy": float(right / count), "loss": float(loss / count)}

    def possible(self, sums: Sums) -> bool:
        return sums.shape == (3,) and super().possible(sums) and 0 <= sums[0] <= sums[1] > 0 and sums[2] >= 0

    def check_labels(self, labels: Tensor, where: str) -> None:
        if labels.dtype != torch.int64 or labels.dim() != 1:
            raise DataError(
                f"{where}: found labels {labels.dtype} {list(labels.shape)}; objective=classification needs int64 [n]. "
                "See `subbit list objectives` for others"
            )

    def classes(self, labels: Tensor) -> int:
        return 1 + int(labels.max()) if len(labels) else 1

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        if not isinstance(outputs, Tensor) and getattr(outputs, "logits", None) is None:
            raise ModelError(f"the module returns {type(outputs).__name__}; needs a tensor [n, classes] of logits")
        shape = tuple(logits_of(outputs).shape)
        if len(shape) != 2 or shape[0] != len(batch) or shape[1] < classes:
            raise ModelError(
                f"the module returns {['n', *shape[1:]]}".replace("'", "")
                + f" for {classes} classes; needs one row [classes] of logits for each example"
            )

    def highest_loss(self, classes: int) -> float:
        """Five times the loss of random guessing."""
        return 5 * math.log(max(2, classes))


class MultiLabel(Objective):
    """Several labels per example, binary cross entropy; the score is the F1 of all labels together.

    Labels: float32 [n, labels] of 0 and 1.
    """

    name: ClassVar[str] = "multi-label"
    counts_classes: ClassVar[bool] = True
    label_kind: ClassVar[LabelKind] = "number"

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        return functional.binary_cross_entropy_with_logits(logits_of(outputs), batch.labels)

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        logits, wanted = logits_of(outputs), batch.labels > 0.5
        told = logits > 0
        losses = functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="none").mean(dim=1)
        columns = [(told & wanted).sum(1), (told & ~wanted).sum(1), (~told & wanted).sum(1), (told == wanted).all(1)]
        return torch.stack([*(wide(column) for column in columns), torch.ones(len(batch)).double(), wide(losses)], 1)

    def scores(self, sums: Sums) -> dict[str, float]:
        found, wrong, missed, whole, count, loss = sums
        told = 2 * found + wrong + missed
        f1 = float(2 * found / told) if told else 1.0  # No label anywhere, and none predicted.
        return {"f1": f1, "exact_match": float(whole / count), "loss": float(loss / count)}

    def possible(self, sums: Sums) -> bool:
        return sums.shape == (6,) and super().possible(sums) and bool((sums >= 0).all()) and 0 <= sums[3] <= sums[4] > 0

    def complete(self, batch: Examples) -> Examples:
        return batch if batch.labels.is_floating_point() else replace(batch, labels=batch.labels.float())

    def check_labels(self, labels: Tensor, where: str) -> None:
        needed = "objective=multi-label needs float32 [n, labels] of 0 and 1"
        if labels.dtype != torch.float32 or labels.dim() != 2:
            raise DataError(f"{where}: found labels {labels.dtype} {list(labels.shape)}; {needed}")
        other = labels[(labels != 0) & (labels != 1)]
        if len(other):
            raise DataError(f"{where}: found {float(other[0]):g}; {needed}")

    def classes(self, labels: Tensor) -> int:
        return int(labels.shape[1])

    def label_form(self, inputs: tuple[tuple[str, TensorForm], ...], classes: int) -> TensorForm:
        return TensorForm(torch.float32, (classes,))

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        if logits_of(outputs).shape != batch.labels.shape:
            raise ModelError(
                f"the module returns {list(logits_of(outputs).shape)} for labels {list(batch.labels.shape)}; "
                "needs one number for each label"
            )

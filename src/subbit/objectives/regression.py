"""Numbers as labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from subbit.core.errors import DataError, ModelError
from subbit.data.examples import Examples
from subbit.data.form import TensorForm
from subbit.data.needs import LabelKind
from subbit.objectives.objective import Objective, Sums, logits_of, wide


class Regression(Objective):
    """Mean squared error; the score is its root, lower is better.

    Labels: float32 [n] or [n, values].
    """

    name: ClassVar[str] = "regression"
    label_kind: ClassVar[LabelKind] = "number"
    higher_is_better = False

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        return (_like(logits_of(outputs), batch.labels) - batch.labels).square().mean()

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        wanted = wide(batch.labels).reshape(len(batch), -1)
        error = wide(_like(logits_of(outputs), batch.labels)).reshape(len(batch), -1) - wanted
        columns = [error.square(), error.abs(), torch.ones_like(wanted), wanted, wanted.square()]
        return torch.stack([column.sum(dim=1) for column in columns], dim=1)

    def scores(self, sums: Sums) -> dict[str, float]:
        squares, absolute, count, total, total_squares = (float(value) for value in sums)
        spread = total_squares - total * total / count
        r2 = 1 - squares / spread if spread > 0 else math.nan
        return {"rmse": math.sqrt(squares / count), "mae": absolute / count, "r2": r2, "loss": squares / count}

    def possible(self, sums: Sums) -> bool:
        return sums.shape == (5,) and super().possible(sums) and bool((sums[[0, 1, 4]] >= 0).all()) and sums[2] > 0

    def complete(self, batch: Examples) -> Examples:
        return batch if batch.labels.is_floating_point() else replace(batch, labels=batch.labels.float())

    def check_labels(self, labels: Tensor, where: str) -> None:
        needed = "objective=regression needs finite float32 [n] or [n, values]"
        if labels.dtype != torch.float32 or labels.dim() not in (1, 2):
            raise DataError(f"{where}: found labels {labels.dtype} {list(labels.shape)}; {needed}")
        if not bool(torch.isfinite(labels).all()):
            raise DataError(f"{where}: found {float(labels[~torch.isfinite(labels)][0])}; {needed}")

    def classes(self, labels: Tensor) -> int:
        return 1 if labels.dim() == 1 else int(labels.shape[1])

    def label_form(self, inputs: tuple[tuple[str, TensorForm], ...], classes: int) -> TensorForm:
        return TensorForm(torch.float32, () if classes == 1 else (classes,))

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        _like(logits_of(outputs), batch.labels)


def _like(outputs: Tensor, labels: Tensor) -> Tensor:
    """Outputs in the shape of the labels: [n, 1] is [n]. Other shapes would broadcast and be silently wrong."""
    if outputs.shape == labels.shape:
        return outputs
    if outputs.shape == (*labels.shape, 1):
        return outputs.squeeze(-1)
    raise ModelError(f"the module returns {list(outputs.shape)} for labels {list(labels.shape)}; needs the same shape")

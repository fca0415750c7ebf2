"""A class at every position of an example: pixels of an image, tokens of a text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from subbit.core.devices import number
from subbit.core.errors import DataError, ModelError
from subbit.data.examples import Examples
from subbit.data.form import TensorForm
from subbit.data.needs import LabelKind
from subbit.objectives.objective import IGNORED, Objective, Sums, logits_of, wide


class Segmentation(Objective):
    """Cross entropy of every pixel; the score is the mean intersection over union of the classes.

    Labels: int64 [n, height, width]; -100 does not count.
    """

    name: ClassVar[str] = "segmentation"
    counts_classes: ClassVar[bool] = True
    labels_are_classes: ClassVar[bool] = True
    label_kind: ClassVar[LabelKind] = "position"

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        return functional.cross_entropy(logits_of(outputs), batch.labels, ignore_index=IGNORED)

    def weight(self, batch: Examples) -> float:
        return number((batch.labels != IGNORED).sum())

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        logits, wanted = logits_of(outputs), batch.labels.flatten(1)
        told, counts = logits.argmax(dim=1).flatten(1), wanted != IGNORED
        losses = functional.cross_entropy(logits, batch.labels, ignore_index=IGNORED, reduction="none").flatten(1)
        columns = [(counts & (told == wanted)).sum(1), counts.sum(1), losses.sum(1)]
        for label in range(logits.shape[1]):
            is_told, is_wanted = counts & (told == label), wanted == label
            columns += [(is_told & is_wanted).sum(1), (is_told | is_wanted).sum(1)]
        return torch.stack([wide(column) for column in columns], dim=1)

    def scores(self, sums: Sums) -> dict[str, float]:
        right, count, loss = sums[:3]
        shared, either = sums[3::2], sums[4::2]
        present = either > 0
        mean = float(np.mean(shared[present] / either[present])) if present.any() else math.nan
        return {"mean_iou": mean, "pixel_accuracy": float(right / count), "loss": float(loss / count)}

    def possible(self, sums: Sums) -> bool:
        whole = len(sums) > 3 and len(sums) % 2 == 1 and super().possible(sums) and bool((sums >= 0).all())
        return whole and sums[0] <= sums[1] > 0 and bool((sums[3::2] <= sums[4::2]).all())

    def check_labels(self, labels: Tensor, where: str) -> None:
        if labels.dtype != torch.int64 or labels.dim() < 2:
            raise DataError(
                f"{where}: found labels {labels.dtype} {list(labels.shape)}; objective=segmentation needs int64 "
                "[n, height, width]"
            )
        if labels.numel() and bool(((labels < 0) & (labels != IGNORED)).any()):
            raise DataError(f"{where}: found a negative class; need 0 or more, or {IGNORED} for what does not count")

    def classes(self, labels: Tensor) -> int:
        return max(1, 1 + int(labels.max())) if labels.numel() else 1

    def label_form(self, inputs: tuple[tuple[str, TensorForm], ...], classes: int) -> TensorForm:
        return TensorForm(torch.int64, inputs[0][1].shape[-2:])

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        shape, labels = tuple(logits_of(outputs).shape), tuple(batch.labels.shape)
        if len(shape) != len(labels) + 1 or (shape[0], *shape[2:]) != labels or shape[1] < classes:
            raise ModelError(
                f"the module returns {list(shape)} for labels {list(labels)} of {classes} classes; needs "
                "[n, classes, height, width]"
            )


class Language(Objective):
    """Cross entropy of the next token; the score is the perplexity, lower is better.

    Labels: int64 [n, length], not shifted, as for transformers' models; -100 does not count. Where there are none: the
    tokens themselves, except padding.
    """

    name: ClassVar[str] = "language"
    label_kind: ClassVar[LabelKind] = "token"
    higher_is_better = False

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        logits, wanted = _shifted(outputs, batch)
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)

    def weight(self, batch: Examples) -> float:
        return number((batch.labels[:, 1:] != IGNORED).sum())

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        logits, wanted = _shifted(outputs, batch)
        losses = functional.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=IGNORED, reduction="none")
        columns = [wide(losses), wide(logits.argmax(dim=2) == wanted), wide(wanted != IGNORED)]
        return torch.stack([column.sum(dim=1) for column in columns], dim=1)

    def scores(self, sums: Sums) -> dict[str, float]:
        loss, right, tokens = (float(value) for value in sums)
        mean = loss / tokens if tokens else math.nan
        return {"perplexity": _exp(mean), "token_accuracy": right / tokens if tokens else math.nan, "loss": mean}

    def possible(self, sums: Sums) -> bool:
        return sums.shape == (3,) and super().possible(sums) and sums[0] >= 0 and 0 <= sums[1] <= sums[2] > 0

    def complete(self, batch: Examples) -> Examples:
        if batch.labels.numel():
            return batch
        tokens = batch.tensors().get("input_ids", batch.tensors().get(""))
        if tokens is None:
            raise DataError("objective=language: found neither labels nor input_ids")
        mask = batch.tensors().get("attention_mask")
        return replace(batch, labels=tokens if mask is None else tokens.masked_fill(mask == 0, IGNORED))

    def check_labels(self, labels: Tensor, where: str) -> None:
        if labels.dtype != torch.int64 or labels.dim() != 2:
            raise DataError(
                f"{where}: found labels {labels.dtype} {list(labels.shape)}; objective=language needs int64 [n, length]"
            )

    def label_form(self, inputs: tuple[tuple[str, TensorForm], ...], classes: int) -> TensorForm:
        return TensorForm(torch.int64, dict(inputs).get("input_ids", inputs[0][1]).shape)

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        _shifted(outputs, batch)


def _shifted(outputs: Any, batch: Examples) -> tuple[Tensor, Tensor]:
    """The outputs at each place but the last, and the token that follows it."""
    logits = logits_of(outputs)
    if logits.dim() != 3 or logits.shape[:2] != batch.labels.shape:
        raise ModelError(
            f"the module returns {list(logits.shape)} for tokens {list(batch.labels.shape)}; objective=language needs "
            "[n, length, vocabulary]"
        )
    return logits[:, :-1], batch.labels[:, 1:]


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf

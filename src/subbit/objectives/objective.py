"""An objective: the loss of a batch, and sums that add up to the scores of a network.

    loss     mean loss of a batch, which training makes smaller
    tally    numbers [n, k] for the n examples of a batch; they add up over examples, batches and clients
    scores   of the sums: the named scores, the first of which is *the* score of a run

So a test set can be split over processes, and clients can say how well a network does without telling more than a few
sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError, ModelError, PluginError
from subbit.core.registry import Registry, make_registry
from subbit.data.examples import Examples
from subbit.data.form import TensorForm
from subbit.data.needs import LabelKind

Sums = NDArray[np.float64]
IGNORED = -100
"""A label that does not count: padding, or a pixel of no class. torch and transformers use the same."""
_OURS = {
    "classification": "subbit.objectives.classes:Classification",
    "multi-label": "subbit.objectives.classes:MultiLabel",
    "regression": "subbit.objectives.regression:Regression",
    "segmentation": "subbit.objectives.positions:Segmentation",
    "language": "subbit.objectives.positions:Language",
    "module": "subbit.objectives.own:ModuleLoss",
    "given": "subbit.objectives.own:OwnObjective",
}


class Objective:
    name: ClassVar[str] = ""
    label_kind: ClassVar[LabelKind] = "any"
    """How labels are read from files."""
    higher_is_better: bool = True
    """Of the score."""
    passes_labels: ClassVar[bool] = False
    """Whether the module is called with the labels too, and returns its loss."""
    losses_from: float = 0.0
    """The smallest possible loss."""
    counts_classes: ClassVar[bool] = False
    """Whether it must be known how many classes there are."""
    fixes_labels: ClassVar[bool] = True
    """Whether `label_form` is the form that labels must have."""
    needs_labels: ClassVar[bool] = True
    labels_are_classes: ClassVar[bool] = False
    """Whether labels are numbers of classes, and the module's outputs [n, classes, ...]."""

    def outputs(self, module: Callable[..., Any], batch: Examples) -> Any:
        """What the module returns for a batch. A dict of inputs becomes the module's arguments of these names."""
        named, inputs = {}, batch.inputs
        if self.passes_labels and batch.labels.numel():
            named["labels"] = batch.labels
        return module(inputs, **named) if isinstance(inputs, Tensor) else module(**inputs, **named)

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError

    def weight(self, batch: Examples) -> float:
        """How much the loss of this batch counts in that of a larger one: what `loss` is a mean over."""
        return float(len(batch))

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        """float64 [n, k]."""
        raise NotImplementedError

    def scores(self, sums: Sums) -> dict[str, float]:
        """The scores by name. The first is the score of the run."""
        raise NotImplementedError

    def possible(self, sums: Sums) -> bool:
        """Whether a network can have these sums; those that clients report are checked by it."""
        return bool(np.isfinite(sums).all())

    def complete(self, batch: Examples) -> Examples:
        """The batch with the labels that this objective derives from the inputs, where there are none."""
        return batch

    def check_labels(self, labels: Tensor, where: str) -> None:
        """Raises `DataError` for labels of another form."""

    def prepare(self, batch: Examples) -> Examples:
        """The batch with labels of this objective's form; raises `DataError` for others."""
        batch = self.complete(batch)
        if len(batch) and self.needs_labels and not batch.labels.numel():
            raise DataError(f"found no labels; objective={self.name} needs them, in a dict of tensors as `labels`")
        if len(batch):
            self.check_labels(batch.labels, "labels")
        return batch

    def classes(self, labels: Tensor) -> int:
        """Number of outputs that these labels need, as far as they tell."""
        return 1

    def label_form(self, inputs: tuple[tuple[str, TensorForm], ...], classes: int) -> TensorForm:
        """The form of the labels of examples with these inputs, where it is not known from examples."""
        return TensorForm(torch.int64, ())

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        """Raises `ModelError` where a module returns something else than this objective needs."""
        loss = self.loss(outputs, batch)
        if loss.dim() or not loss.is_floating_point():
            raise ModelError(f"the loss is {loss.dtype} {list(loss.shape)}; needs one floating-point number")

    def highest_loss(self, classes: int) -> float:
        """Losses above it are not told apart when clients are selected by loss."""
        return math.inf

    def better(self, one: float, other: float) -> bool:
        """Whether the first score is better than the second."""
        return one > other if self.higher_is_better else one < other


def _check(name: str, thing: Any) -> None:
    if not (isinstance(thing, type) and issubclass(thing, Objective)):
        raise PluginError(f"objective {name!r}: needs a subclass of subbit.objectives.Objective")
    for attribute in ("loss", "tally", "scores"):
        if getattr(thing, attribute) is getattr(Objective, attribute):
            raise PluginError(f"objective {name!r}: {thing.__name__} lacks {attribute}")


OBJECTIVES: Registry[type[Objective]] = make_registry("objective", _OURS, _check)


def find_objective(name: str) -> Objective:
    return OBJECTIVES.find(name)()


def wide(values: Tensor) -> Tensor:
    """In float64, on the CPU: not every device has float64."""
    return values.cpu().double()


def add_up(tallies: Sums) -> Sums:
    """The sums of the columns. Each is summed by itself, in numpy's pairwise order."""
    sums: Sums = np.ascontiguousarray(tallies.T).sum(axis=1)
    return sums


def logits_of(outputs: Any) -> Tensor:
    """The outputs of a module as one tensor: itself, or the `logits` of what transformers' models return.

    Those of a module of lower precision become float32: a loss adds up many small numbers.
    """
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor):
        raise ModelError(f"the module returns {type(outputs).__name__}; needs a tensor, or an object with `logits`")
    return logits_of(logits)


def finite(outputs: Any) -> bool:
    """Whether all numbers that a module returned are finite."""
    if isinstance(outputs, Tensor):
        return not outputs.is_floating_point() or bool(torch.isfinite(outputs).all())
    values = outputs.values() if isinstance(outputs, Mapping) else outputs if isinstance(outputs, tuple | list) else ()
    return all(finite(value) for value in values)

"""Losses of one's own: that of the module itself, or functions given to `subbit.fine_tune`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from subbit.core.blame import one_line, place_of
from subbit.core.errors import ConfigError, ModelError, SubbitError
from subbit.data.examples import Examples
from subbit.objectives.objective import Objective, Sums, logits_of, wide


class ModuleLoss(Objective):
    """The loss that the module returns when it is given labels; it is the score too, lower is better."""

    name: ClassVar[str] = "module"
    fixes_labels: ClassVar[bool] = False
    higher_is_better = False
    passes_labels: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = False
    losses_from = -math.inf

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        if isinstance(outputs, Tensor) and not outputs.dim():
            return outputs
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        if not isinstance(loss, Tensor):
            raise ModelError(
                f"the module returns {type(outputs).__name__} without a loss; objective=module needs a number, or an "
                "object with `loss`"
            )
        return loss.mean()

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        loss = wide(self.loss(outputs, batch))  # The module only tells the mean of the batch.
        return torch.stack([loss.expand(len(batch)), torch.ones(len(batch)).double()], dim=1)

    def scores(self, sums: Sums) -> dict[str, float]:
        return {"loss": float(sums[0] / sums[1])}


class OwnObjective(Objective):
    """Functions given to `subbit.fine_tune`: `loss=` and `score=`.

    `loss(outputs, labels)` is the mean loss of a batch; `score(outputs, labels)` has one number per example, [n], whose
    mean is the score. Without a score it is the loss."""

    name: ClassVar[str] = "given"
    fixes_labels: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    losses_from = -math.inf

    def __init__(
        self,
        loss: Callable[[Any, Any], Tensor] | None = None,
        score: Callable[[Any, Any], Tensor] | None = None,
        higher_is_better: bool | None = None,
    ) -> None:
        if loss is None:
            raise ConfigError(
                "score=: give loss= too, the function that training makes smaller"
                if score is not None
                else "objective=given: only subbit.fine_tune can be given functions, as loss= and score="
            )
        if not callable(loss) or not (score is None or callable(score)):
            raise ConfigError("loss and score: need functions of (outputs, labels)")
        self._loss, self._score = loss, score
        self.higher_is_better = score is not None if higher_is_better is None else higher_is_better

    def loss(self, outputs: Any, batch: Examples) -> Tensor:
        return self._call(self._loss, outputs, batch, "loss")

    def tally(self, outputs: Any, batch: Examples) -> Tensor:
        count = len(batch)
        columns = [wide(self.loss(outputs, batch)).expand(count), torch.ones(count).double()]
        if self._score is not None:
            values = self._call(self._score, outputs, batch, "score")
            if values.shape not in ((count,), ()):
                raise ModelError(f"score returns {list(values.shape)} for {count} examples; needs one number for each")
            columns.append(wide(values).expand(count))
        return torch.stack(columns, dim=1)

    def check_outputs(self, outputs: Any, batch: Examples, classes: int) -> None:
        super().check_outputs(outputs, batch, classes)
        with torch.enable_grad():
            values = logits_of(outputs).detach().requires_grad_()
            loss = self.loss(values, batch)
        if not bool(torch.isfinite(loss)):
            raise ModelError(f"loss: found {float(loss.detach())} for the untrained network; needs a finite number")
        if not loss.requires_grad:
            raise ModelError("loss: found a number without a gradient; compute it from the outputs, with torch alone")
        if self._score is not None and not bool(torch.isfinite(self.tally(outputs, batch)).all()):
            raise ModelError("score: found a number that is not finite for the untrained network; needs finite ones")

    def scores(self, sums: Sums) -> dict[str, float]:
        loss = {"loss": float(sums[0] / sums[1])}
        if self._score is None:
            return loss
        return {getattr(self._score, "__name__", "score").strip("<>"): float(sums[2] / sums[1]), **loss}

    def _call(self, function: Callable[[Any, Any], Tensor], outputs: Any, batch: Examples, what: str) -> Tensor:
        try:
            value = function(outputs if isinstance(outputs, Tensor) else logits_of(outputs), batch.labels)
        except SubbitError:
            raise
        except Exception as error:
            raise ModelError(f"{what}: {one_line(error)}{place_of(error)}") from error
        if not isinstance(value, Tensor):
            raise ModelError(f"{what}: found {type(value).__name__}; needs a tensor")
        return value

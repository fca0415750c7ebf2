"""Per-example gradients, clipped to a norm and summed over the batch.

    g_i = gradient of the loss of example i with respect to all trained parameters, as one vector
    sum_i g_i min(1, C / |g_i|)

so that adding or removing one example changes the sum by at most C (Abadi et al., "Deep Learning with Differential
Privacy", CCS 2016). The network processes one example at a time, vectorised over the batch by `torch.func`. Opacus
computes the same gradients with hooks for each type of layer. Hooks miss parameters used outside of layers (prompts,
class tokens) and the keyword arguments of transformers, which silently gives wrong results. `torch.func` raises for
what it cannot vectorise and needs no list of supported layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from subbit.data.examples import Examples, Inputs
from subbit.models.flat import FlatModel
from subbit.objectives.classes import Classification
from subbit.objectives.objective import Objective

VALUES_AT_ONCE = 1 << 24
"""Number of gradient values held at a time (64 MB); limits the examples processed at once."""


class PerSampleGradients:
    def __init__(self, flat: FlatModel, objective: Objective | None = None) -> None:
        self.flat, self.objective = flat, objective or Classification()
        # `different`: a separate dropout mask for every example.
        self._of_each = vmap(grad(self._loss), in_dims=(None, 0, 0), randomness="different")

    def _loss(self, parameters: dict[str, Tensor], example: Inputs, label: Tensor) -> Tensor:
        def module(*args: Tensor, **named: Tensor) -> Any:
            return functional_call(self.flat.module, parameters, args, named)

        one = {name: tensor.unsqueeze(0) for name, tensor in example.items()} if isinstance(example, dict) else None
        batch = object.__new__(Examples)  # Without the checks, which look at values.
        inputs = example.unsqueeze(0) if isinstance(example, Tensor) else one
        batch.__dict__.update(inputs=inputs, labels=label.unsqueeze(0), owners=None, rows=None)
        return self.objective.loss(self.objective.outputs(module, batch), batch)

    def of_each(self, batch: Examples) -> list[Tensor]:
        """For each trained parameter, the gradients of all examples, stacked."""
        flat = self.flat
        views = [view.detach() for view in flat.template.views(flat.weights)]
        parameters = dict(zip(flat.template.names, views, strict=True))
        # The fused CPU attention cannot be vectorised and would be called for one example after another.
        with sdpa_kernel(SDPBackend.MATH):
            gradients = self._of_each(parameters, batch.inputs, batch.labels)
        return [gradients[name].detach() for name in flat.template.names]

    def clipped_sum(self, batch: Examples, bound: float) -> Tensor:
        """The sum of the clipped gradients as a flat vector; zero for an empty batch."""
        total = torch.zeros_like(self.flat.gradient)
        views = self.flat.template.views(total)
        at_once = max(1, VALUES_AT_ONCE // max(1, self.flat.template.size))
        for part in batch.in_batches(at_once):
            add_clipped(views, self.of_each(part), bound)
        return total


def add_clipped(totals: list[Tensor], gradients: list[Tensor], bound: float) -> None:
    """Add the clipped gradient of every example to the totals; the norm of an example is over all tensors.

    An example whose gradient is not finite counts as zero, since infinities would violate the bound.
    """
    # On a device without float64 by float32 alone, whose overflow is an example that counts as zero.
    wide = torch.float32 if gradients[0].device.type == "mps" else torch.float64
    norms = torch.stack([gradient.flatten(1).to(wide).square().sum(1) for gradient in gradients]).sum(0).sqrt()
    finite = torch.isfinite(norms)
    factors = torch.where(finite, bound / norms.clamp(min=bound), 0.0).float()
    for total, gradient in zip(totals, gradients, strict=True):
        # Zero times infinity would not be zero.
        counted = torch.where(finite.view(-1, *[1] * (gradient.dim() - 1)), gradient, 0.0)
        total += torch.tensordot(factors, counted, dims=1)

"""The gradient of every example by itself, clipped to a norm, summed over the batch.

    g_i = gradient of the loss of example i in everything that is trained, as one vector
    sum_i g_i min(1, C / |g_i|)

so that adding or removing one example moves the sum by C at most (Abadi et al., "Deep Learning with Differential
Privacy", CCS 2016). The network sees a batch of one example, vectorised over the batch by `torch.func`. Opacus gets
the same gradients from hooks, one kind of layer at a time. Hooks see neither parameters that a module uses without a
layer (prompts, class tokens) nor the keyword arguments of transformers, and what they miss is wrong without a word;
what `torch.func` cannot vectorise is an error, and what it can needs no list of layers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from subbit.data.examples import Examples
from subbit.models.flat import FlatModel

VALUES_AT_ONCE = 1 << 24
"""Gradients held at a time, of as many examples as that allows: 64 MB."""


class PerSampleGradients:
    def __init__(self, flat: FlatModel) -> None:
        self.flat = flat
        # `different`: a dropout mask of its own for every example.
        self._of_each = vmap(grad(self._loss), in_dims=(None, 0, 0), randomness="different")

    def _loss(self, parameters: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
        outputs = functional_call(self.flat.module, parameters, (example.unsqueeze(0),))
        return functional.cross_entropy(outputs, label.unsqueeze(0))

    def of_each(self, batch: Examples) -> list[Tensor]:
        """Per trained parameter, the gradients of all examples, one after the other."""
        flat = self.flat
        views = [view.detach() for view in flat.template.views(flat.weights)]
        parameters = dict(zip(flat.template.names, views, strict=True))
        # The fused attention of a CPU cannot be vectorised: it would be called for one example after the other.
        with sdpa_kernel(SDPBackend.MATH):
            gradients = self._of_each(parameters, batch.inputs, batch.labels)
        return [gradients[name].detach() for name in flat.template.names]

    def clipped_sum(self, batch: Examples, bound: float) -> Tensor:
        """The sum of the clipped gradients, a flat vector; zero for a batch without examples."""
        total = torch.zeros_like(self.flat.gradient)
        views = self.flat.template.views(total)
        at_once = max(1, VALUES_AT_ONCE // max(1, self.flat.template.size))
        for start in range(0, len(batch), at_once):
            part = slice(start, start + at_once)
            gradients = self.of_each(Examples(batch.inputs[part], batch.labels[part]))
            add_clipped(views, gradients, bound)
        return total


def add_clipped(totals: list[Tensor], gradients: list[Tensor], bound: float) -> None:
    """Add the clipped gradient of every example to the totals, all tensors of an example under one norm.

    An example whose gradient is not finite counts as zero: a bound that infinities break is none.
    """
    norms = torch.stack([gradient.flatten(1).double().square().sum(1) for gradient in gradients]).sum(0).sqrt()
    finite = torch.isfinite(norms)
    factors = (bound / norms[finite].clamp(min=bound)).float()
    for total, gradient in zip(totals, gradients, strict=True):
        total += torch.tensordot(factors, gradient[finite], dims=1)

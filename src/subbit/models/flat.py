"""Any module as one flat vector.

The selected parameters of a module become views into one float32 buffer, and their gradients views into another. No
layer is rewritten: the forward pass reads what was last written to `weights`, the backward pass adds to `gradient`, and
an optimiser or a reparametrisation updates one tensor. All other parameters are frozen and stay bit-identical.

A tied parameter (one with several names, such as the embeddings of a language model) has one place in the vector.
Layers of lower precision with a selected parameter become float32 (`subbit.models.precision`).

Batch normalisation needs a policy, because running statistics are weights that are not trained by gradients:

    frozen    the layers are always in evaluation mode; running statistics never change (for pre-trained networks)
    batch     batch statistics in training and in evaluation; running statistics are neither read nor written
    average   ordinary training mode; the running statistics are exposed as `statistics`, to be averaged like weights
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from subbit.core.errors import ModelError
from subbit.models.backward_pass import run_backward
from subbit.models.frozen_weights import is_quantised
from subbit.models.precision import HALVES, widen_layers
from subbit.models.select import note_frozen, select_parameters
from subbit.models.template import Template

LARGE = 1 << 23
"""From this number of trained parameters on, memory counts more than time."""
BATCHNORM_POLICIES = ("frozen", "batch", "average")


class FlatModel:
    """Selected parameters become views into one flat float32 buffer, and their `.grad` views into another."""

    def __init__(self, module: nn.Module, selection: str, batchnorm: str = "frozen", even_frozen: bool = False) -> None:
        """`even_frozen`: see `select_parameters`."""
        if batchnorm not in BATCHNORM_POLICIES:
            raise ModelError(f"batchnorm={batchnorm!r}: there are {', '.join(BATCHNORM_POLICIES)}")
        note_frozen(module)
        parameters = dict(module.named_parameters())
        names = select_parameters(module, selection, even_frozen)
        _refuse_unfit(parameters, names)
        _refuse_overlaps(parameters, set(names))
        widen_layers(module, names)
        self.module = module
        self.batchnorm = batchnorm
        self._parameters = [parameters[name] for name in names]
        self._frozen = [parameter for name, parameter in parameters.items() if name not in set(names)]
        self.template = Template(tuple(names), tuple(tuple(parameter.shape) for parameter in self._parameters))
        self.weights = _concatenated(self._parameters)
        self.gradient = torch.zeros_like(self.weights)
        self._own = [(buffer, self.template.views(buffer)) for buffer in (self.weights, self.gradient)]
        self.initial = self.weights.clone()
        self._norm_layers = [layer for layer in module.modules() if isinstance(layer, _NormBase)]
        self.statistics: Tensor | None = None
        self.statistics_template: Template | None = None
        self._statistics_buffers: list[Tensor] = []
        self._counters: list[tuple[Tensor, Tensor]] = []
        if batchnorm == "average":
            self._expose_statistics()
        self.attach()

    def _expose_statistics(self) -> None:
        names, counters = [], []
        for name, layer in self.module.named_modules():
            if isinstance(layer, _NormBase) and layer.running_mean is not None:
                names += [f"{name}.running_mean".removeprefix("."), f"{name}.running_var".removeprefix(".")]
                if layer.num_batches_tracked is not None:
                    counters.append(layer.num_batches_tracked)
        if names:
            self._statistics_buffers = [self.module.get_buffer(name) for name in names]
            self.statistics_template = Template(
                tuple(names), tuple(tuple(buffer.shape) for buffer in self._statistics_buffers)
            )
            self.statistics = _concatenated(self._statistics_buffers)
            self._counters = [(counter, counter.clone()) for counter in counters]

    def attach(self) -> None:
        """Bind the parameters to this model's buffers, as after construction.

        Needed if another FlatModel on the same module, or `module.to(...)`, may have rebound them.
        """
        for parameter, view in zip(self._parameters, self._views_of(self.weights), strict=True):
            parameter.data = view
            parameter.requires_grad_(True)
        self._gradient_views = self._views_of(self.gradient)
        for parameter, view in zip(self._parameters, self._gradient_views, strict=True):
            parameter.grad = view
        for parameter in self._frozen:
            parameter.requires_grad_(False)
            parameter.grad = None
        if self.statistics is not None and self.statistics_template is not None:
            views = self.statistics_template.views(self.statistics)
            for buffer, view in zip(self._statistics_buffers, views, strict=True):
                buffer.data = view

    def _views_of(self, vector: Tensor) -> list[Tensor]:
        """Those of the own buffers are kept: every turn binds the parameters to them."""
        return next((views for buffer, views in self._own if buffer is vector), None) or self.template.views(vector)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def place(self, values: NDArray[Any]) -> Tensor:
        """The values of an array on the device of the model."""
        return torch.from_numpy(values).to(self.device)

    @contextmanager
    def training(self, vector: Tensor) -> Iterator[None]:
        """Inside, `weights` and `gradient` are this vector and its `.grad`: a step of the vector is one of the module,
        without a copy. Afterwards the model has its own buffers again, with the vector's values."""
        if vector.grad is None:
            raise ModelError("a vector without a gradient cannot be trained in place")
        own = self.weights, self.gradient
        self.weights, self.gradient = vector, vector.grad
        self.attach()
        try:
            yield
        finally:
            self.weights, self.gradient = own
            self.weights.copy_(vector.detach())
            self.attach()

    def zero_gradient(self) -> None:
        self.gradient.zero_()

    def backward(self, loss: Tensor) -> None:
        """Replace `gradient` by that of the loss."""
        if self.template.size > LARGE:  # Adding takes longer, but no memory for a second gradient.
            self.zero_gradient()
            self.add_gradient(loss)
            return
        # One copy is cheaper than zeroing and adding.
        for found, view in zip(self._gradients(loss), self._gradient_views, strict=True):
            if found is None:
                view.zero_()
            else:
                view.copy_(found)

    def add_gradient(self, loss: Tensor) -> None:
        """Add the gradient of the loss to `gradient`."""
        run_backward(loss)

    def gradient_pieces(self, loss: Tensor) -> list[Tensor]:
        """The gradient of the loss by parameter, without a copy into `gradient`."""
        pieces = zip(self._gradients(loss), self._gradient_views, strict=True)
        return [torch.zeros_like(view) if found is None else found for found, view in pieces]

    def _gradients(self, loss: Tensor) -> list[Tensor | None]:
        """By parameter, as autograd hands them over if there is no gradient to add to."""
        for parameter in self._parameters:
            parameter.grad = None
        run_backward(loss)
        found = [parameter.grad for parameter in self._parameters]
        for parameter, view in zip(self._parameters, self._gradient_views, strict=True):
            parameter.grad = view
        return found

    def mixing_layer(self) -> str | None:
        """The name of a layer that normalises by statistics of the batch, so that an example's outputs depend on the
        others; none if there is none."""
        if self.batchnorm == "frozen":
            return None
        name: str
        for name, layer in self.module.named_modules():
            if isinstance(layer, _BatchNorm) or getattr(layer, "running_mean", None) is not None:
                return name
        return None

    def training_mode(self) -> None:
        """`module.train()` under the batch normalisation policy. Dropout is active if the module has it."""
        self.module.train()
        self._set_norm_layers(training=self.batchnorm != "frozen")

    def evaluation_mode(self) -> None:
        self.module.eval()
        self._set_norm_layers(training=self.batchnorm == "batch")

    def _set_norm_layers(self, training: bool) -> None:
        for layer in self._norm_layers:
            layer.train(training)
            # Another FlatModel may have changed this flag. The module tracks statistics if it has the buffers.
            layer.track_running_stats = layer.running_mean is not None and self.batchnorm != "batch"
        # The batch counter is local to a process. If it were kept, the model would depend on which clients share a
        # process.
        for counter, initial in self._counters:
            counter.copy_(initial)


def model_sha256(module: nn.Module) -> str:
    """SHA-256 of the state dict: sorted names, types, shapes and raw bytes."""
    tensors = ((name, value) for name, value in module.state_dict().items() if isinstance(value, Tensor))
    return sha256_of((name, value.dequantize() if is_quantised(value) else value) for name, value in tensors)


def sha256_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _refuse_unfit(parameters: dict[str, nn.Parameter], names: list[str]) -> None:
    for name in names:
        parameter = parameters[name]
        if parameter.dtype not in (torch.float32, *HALVES):
            raise ModelError(
                f"{name} is {parameter.dtype}: select float32 parameters or convert the module by .float()"
            )
        if parameter.is_meta or parameter.device != parameters[names[0]].device:
            raise ModelError(f"{name} lies on {parameter.device}: selected parameters must lie on one real device")


def _refuse_overlaps(parameters: dict[str, nn.Parameter], selected: set[str]) -> None:
    """Reject different parameters in one memory: neither two parts of the vector, nor one trained and one frozen."""
    in_memory = {
        name: parameter for name, parameter in parameters.items() if parameter.numel() and not parameter.is_meta
    }
    spans = sorted((*_memory(parameter), name) for name, parameter in in_memory.items())
    # `previous` is the span that ends last so far: tied parameters need not be neighbours in memory.
    previous = (0, 0, "")
    for start, end, name in spans:
        if start < previous[1] and selected & {name, previous[2]}:
            raise ModelError(
                f"{previous[2]} and {name} are two parameters in one memory: make them one (module.b = module.a), give "
                f"one its own by nn.Parameter(parameter.detach().clone()), or select another part"
            )
        if end > previous[1]:
            previous = (start, end, name)


def _memory(parameter: nn.Parameter) -> tuple[int, int]:
    """Start and end address of the parameter."""
    reach = sum((length - 1) * stride for length, stride in zip(parameter.shape, parameter.stride(), strict=True))
    return parameter.data_ptr(), parameter.data_ptr() + (reach + 1) * parameter.element_size()

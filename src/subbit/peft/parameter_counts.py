"""Counts what a tuning trains and a client's turn takes, on the real modules without weights (torch's meta device).

Memory is estimated, since what a library allocates in passing is not known before it runs:

    weights       the network as it was given, in the precision in which it is kept
    trained       float32: the vector in the network, at its start, as received, and as trained; its gradient; what the
                  optimiser keeps
    activations   of one example: all tensors that autograd keeps for the backward pass, recorded in a forward pass on
                  the meta device, in float32, with attention that does not keep its matrix

Not in it: Python and its libraries (0.3 to 0.5 GB), the data, temporary results inside a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from subbit.core.errors import ModelError
from subbit.models.select import select_parameters
from subbit.peft.weightless import Weightless, weightless

FLOAT_BYTES = 4
PRECISIONS = {"float32": 4, "bfloat16": 2, "int8": 1}
"""Bytes of a weight."""
VECTORS = 4
"""That a turn keeps of what it trains, beside gradient and optimiser."""


@dataclass(frozen=True)
class Count:
    trained: int
    total: int
    """Parameters of the module, including added ones."""
    activations: int | None = None
    """Bytes of one example. None: not asked for, or the network does not run without values."""
    example: str = ""
    is_decoder: bool = False

    def trained_bytes(self, optimiser: int) -> int:
        """`optimiser`: how many vectors it keeps."""
        return FLOAT_BYTES * self.trained * (VECTORS + 1 + optimiser)

    def memory(self, optimiser: int, examples: int) -> dict[str, int] | None:
        """Bytes of a turn by the precision of the weights, with so many examples at a time."""
        if self.activations is None:
            return None
        rest = self.trained_bytes(optimiser) + examples * self.activations
        return {name: width * self.total + rest for name, width in PRECISIONS.items()}


def count(
    model: str,
    classes: int | None,
    add: Callable[[nn.Module], str | None],
    *,
    length: int | None = None,
    activations: bool = False,
) -> Count:
    """`add` is a tuning: it adds its modules in place and returns the selection of what is trained."""
    network = weightless(model, classes, length)
    module = network.module
    with torch.device("meta"):
        selection = add(module)
    names = set(select_parameters(module, selection or "all"))
    sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    found = kept_for_backward(network) if activations else None
    trained, total = sum(sizes[name] for name in names), sum(sizes.values())
    return Count(trained, total, found, network.example, network.is_decoder)


def kept_for_backward(network: Weightless) -> int | None:
    """Bytes of all tensors that autograd keeps of one example, without parameters and buffers."""
    module, kept = network.module, {}
    own = {tensor.untyped_storage()._cdata for tensor in (*module.parameters(), *module.buffers())}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage  # Kept alive, or another one could have its number.
        return tensor

    hooks = [layer.register_forward_hook(_with_lora) for layer in module.modules() if hasattr(layer, "lora_A")]
    first = [network.inputs[""]] if "" in network.inputs else []
    named = {name: value for name, value in network.inputs.items() if name}
    try:
        with torch.device("meta"), _Attention(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            module.train()(*first, **named)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, ModelError):
        return None  # It asks for values, or takes other inputs.
    finally:
        for hook in hooks:
            hook.remove()
    return sum(storage.nbytes() for storage in kept.values())


def _with_lora(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Without values LoRA is only the shapes of its layers."""
    change: Tensor = layer.lora_B(layer.lora_A(inputs[0]))
    return output + change


class _Attention(TorchFunctionMode):
    """Attention as all devices compute it: without values torch would take the one that keeps the whole matrix."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value"), args, strict=False)) | (kwargs or {})
            return _Fused.apply(given["query"], given["key"], given["value"])  # type: ignore[no-untyped-call]
        return function(*args, **(kwargs or {}))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = query.new_empty((*query.shape[:-1], value.shape[-1]))
        context.save_for_backward(query, key, value, output)
        return output

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        raise NotImplementedError("only counted")

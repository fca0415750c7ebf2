"""The frozen prefix of a network: everything it computes before its first trained layer.

For an example the prefix gives the same values in every step, so they can be computed once and kept. `Prefix.capture`
runs a module up to the cut, the first call that depends on what is trained, and returns the values that enter it.
`Prefix.outputs` runs the module from there on: the calls before the cut are not made. They return NaN instead, and the
kept values take the place of what reaches the cut.

No layer is rewritten, and nothing is assumed about the module: `find_prefix` watches which submodules it calls, and
accepts a cut only if the outputs without the calls before it are the same, bit for bit. A value that goes around the
cut, such as a skip connection, arrives as NaN and shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

Forward = Callable[..., Any]


class _Reached(BaseException):
    """Ends a forward pass at the cut. Not an `Exception`, which a module might catch."""


@dataclass(frozen=True)
class Leaf:
    """A floating-point tensor with one row per example. It is kept as float32."""

    positions: tuple[int, ...]
    """Among all arguments of the call at the cut. Several, if one tensor is given several times: attention looks
    whether its query is its key."""
    shape: tuple[int, ...]
    """Of one example."""
    stride: tuple[int, ...]
    """Of the whole tensor: the layers after the cut round differently in another memory layout."""
    dtype: torch.dtype = torch.float32

    @property
    def width(self) -> int:
        return torch.Size(self.shape).numel()

    def tensor(self, values: Tensor) -> Tensor:
        """The tensor of these rows [n, width]."""
        tensor = values.view(-1, *self.shape).to(self.dtype)
        if tensor.stride() == self.stride:
            return tensor
        return torch.empty_strided(tensor.shape, self.stride, dtype=self.dtype, device=tensor.device).copy_(tensor)


@dataclass(frozen=True)
class Skipped:
    """A call before the cut, and how to make NaNs in the form of its result."""

    module: nn.Module
    structure: Any
    values: tuple[Any, ...]
    """What is not a tensor as it was; of a tensor its type, and for each dimension (per example, fixed)."""

    def result(self, examples: int) -> Any:
        return tree_unflatten([_poison(value, examples) for value in self.values], self.structure)


@dataclass(frozen=True)
class NanTensor:
    dtype: torch.dtype
    device: torch.device
    dimensions: tuple[tuple[int, int], ...]


def _poison(value: Any, examples: int) -> Any:
    if not isinstance(value, NanTensor):
        return value
    shape = [each * examples + fixed for each, fixed in value.dimensions]
    one = torch.full((1,), torch.nan, dtype=value.dtype, device=value.device)
    return one.expand(shape)  # No memory, whatever the shape.


@dataclass(frozen=True)
class Prefix:
    module: nn.Module
    cut: nn.Module
    skipped: tuple[Skipped, ...]
    leaves: tuple[Leaf, ...]

    @property
    def width(self) -> int:
        """Number of values that enter the cut, per example."""
        return sum(leaf.width for leaf in self.leaves)

    def capture(self, inputs: Tensor) -> Tensor:
        """What the prefix computes, [n, width], in the mode in which the module and autograd are: some layers round
        differently in training."""
        found: list[Tensor] = []

        def reached(forward: Forward, *args: Any, **kwargs: Any) -> Any:
            arguments, _ = tree_flatten((args, kwargs))
            given = (arguments[leaf.positions[0]].reshape(len(inputs), leaf.width) for leaf in self.leaves)
            found.extend(tensor.float() for tensor in given)
            raise _Reached

        try:
            with _replaced({self.cut: reached}):
                self.module(inputs)
        except _Reached:
            pass
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)

    def outputs(self, inputs: Tensor, values: Tensor) -> Any:
        """The module's outputs, from the values that `capture` gave for these inputs."""
        parts = torch.split(values, [leaf.width for leaf in self.leaves], dim=1)
        tensors = [leaf.tensor(part.contiguous()) for leaf, part in zip(self.leaves, parts, strict=True)]
        waiting: dict[nn.Module, list[Skipped]] = {}
        for call in self.skipped:
            waiting.setdefault(call.module, []).append(call)

        def skip(module: nn.Module, forward: Forward, *args: Any, **kwargs: Any) -> Any:
            # A module may be called again behind the cut, e.g. an activation without weights.
            return waiting[module].pop(0).result(len(inputs)) if waiting[module] else forward(*args, **kwargs)

        def enter(_: nn.Module, args: Any, kwargs: Any) -> Any:
            if not tensors:
                return None  # Called again.
            arguments, structure = tree_flatten((args, kwargs))
            for leaf, tensor in zip(self.leaves, tensors, strict=True):
                for position in leaf.positions:
                    arguments[position] = tensor
            tensors.clear()
            return tree_unflatten(arguments, structure)

        # First of all hooks: others may look at the arguments.
        handle = self.cut.register_forward_pre_hook(enter, prepend=True, with_kwargs=True)
        try:
            with _replaced({module: _bound(skip, module) for module in waiting}):
                return self.module(inputs)
        finally:
            handle.remove()


def _bound(skip: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    return lambda forward, *args, **kwargs: skip(module, forward, *args, **kwargs)


@contextmanager
def _replaced(stand_ins: dict[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Inside, calls of these modules call the stand-ins, with the module's own `forward` as first argument."""
    before = {module: vars(module).get("forward") for module in stand_ins}
    for module, stand_in in stand_ins.items():
        # Not by setattr, which is slow for modules.
        vars(module)["forward"] = _with_own(stand_in, module.forward)
    try:
        yield
    finally:
        for module, own in before.items():
            if own is None:
                vars(module).pop("forward", None)
            else:
                vars(module)["forward"] = own


def _with_own(stand_in: Callable[..., Any], own: Forward) -> Forward:
    return lambda *args, **kwargs: stand_in(own, *args, **kwargs)

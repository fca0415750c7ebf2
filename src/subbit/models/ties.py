"""Copies of modules in which what was tied stays tied, and which need not take memory for what stays frozen."""

from __future__ import annotations

import copy

from torch import nn

ALIGNMENT = 64
"""Of tensors that torch allocates. At other addresses matrix products may round differently."""


def copy_module(module: nn.Module, share: bool = False) -> nn.Module:
    """A deep copy. Different parameters over one tensor, which torch would copy one by one, become one parameter.

    With `share`, parameters are new but have the memory of the module's, for a copy whose parameters are bound to other
    memory before they are written to. Buffers are copied in any case.
    """
    memo = {id(parameter): _sharing(parameter) for parameter in module.parameters() if share and can_share(parameter)}
    copied = copy.deepcopy(module, memo)
    first: dict[tuple[object, ...], str] = {}
    for name, parameter in module.named_parameters():
        if parameter.is_meta or not parameter.numel():
            continue
        place = (parameter.data_ptr(), parameter.dtype, parameter.shape, parameter.stride())
        if place in first:
            owner, _, leaf = name.rpartition(".")
            copied.get_submodule(owner).register_parameter(leaf, copied.get_parameter(first[place]))
        first.setdefault(place, name)
    return copied


def can_share(parameter: nn.Parameter) -> bool:
    """Whether a copy would look the same to every kernel: a whole tensor of its own, at an address like a new one's."""
    if type(parameter) is not nn.Parameter or parameter.is_meta or not parameter.is_contiguous():
        return False
    whole = parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()
    return whole and parameter.data_ptr() % ALIGNMENT == 0


def aligned(module: nn.Module) -> nn.Module:
    """The module, its parameters that are mapped from a file, at any address, in memory that copies can share."""
    for parameter in module.parameters():
        if type(parameter) is nn.Parameter and not parameter.is_meta and parameter.data_ptr() % ALIGNMENT:
            parameter.data = parameter.data.clone()
    return module


def own_memory(module: nn.Module, given: nn.Module | None = None) -> None:
    """Give all parameters memory of their own or, with `given`, those that share that module's."""
    theirs = None if given is None else {parameter.data_ptr() for parameter in given.parameters()}
    for parameter in module.parameters():
        if theirs is None or parameter.data_ptr() in theirs:
            parameter.data = parameter.data.clone()


def _sharing(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)

"""Copies of modules in which what was tied stays tied."""

from __future__ import annotations

import copy

from torch import nn


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy. Different parameters over one tensor, which torch would copy one by one, become one parameter."""
    copied = copy.deepcopy(module)
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

"""LoRA merged into the layers it changes, or taken off: a module without peft's layers."""

from __future__ import annotations

import copy
import sys

from torch import nn


def has_lora(module: nn.Module) -> bool:
    return bool(_lora_layers(module))


def without_lora(module: nn.Module, *, merge: bool) -> nn.Module:
    """A copy in which every LoRA layer is a plain one: with `merge` the sum of both, else the frozen layer alone."""
    made = copy.deepcopy(module)
    for name in _lora_layers(made):
        layer = made.get_submodule(name)
        if merge:
            layer.merge()  # type: ignore[operator]
        owner, _, own_name = name.rpartition(".")
        setattr(made.get_submodule(owner), own_name, layer.get_base_layer())  # type: ignore[operator]
    for part in made.modules():
        if "peft_config" in vars(part):
            del part.peft_config
    return made


def _lora_layers(module: nn.Module) -> list[str]:
    # Where nobody imported peft nothing is a layer of it, and importing it takes seconds.
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    if tuners is None:
        return []
    return [name for name, layer in module.named_modules() if isinstance(layer, tuners.BaseTunerLayer)]

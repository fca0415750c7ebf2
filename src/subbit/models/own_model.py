"""Models of one's own: `model=my_package.my_module:build` names a function that returns a module."""

from __future__ import annotations

from typing import Any

from torch import nn

from subbit.core.errors import ModelError
from subbit.core.imported import call_imported
from subbit.core.randomness import torch_randomness


def build_own(name: str, key: int, offered: dict[str, Any]) -> nn.Module:
    """What the function of this name returns. torch's random numbers inside are drawn from the key."""
    with torch_randomness(key):
        module = call_imported("model", name, offered)
    if not isinstance(module, nn.Module):
        raise ModelError(f"model={name}: returns {type(module).__name__}; needs a torch.nn.Module")
    return module

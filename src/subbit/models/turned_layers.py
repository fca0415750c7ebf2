"""Layers that keep their matrix turned, as [inputs, outputs]."""

from __future__ import annotations

from torch import nn


def is_turned(layer: nn.Module) -> bool:
    """transformers' `Conv1D`, of which GPT-2 is built. By its name: importing transformers takes seconds."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")

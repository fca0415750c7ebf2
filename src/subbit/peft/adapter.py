"""Bottleneck adapters: h + up(GELU(down(h))) on the output of every feed-forward layer, before the residual sum.

Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019; placed as in Pfeiffer et al., "AdapterHub",
EMNLP 2020. `up` starts at zero, so the network is initially unchanged, bit for bit.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from subbit.peft.blocks import feed_forward_output, outputs_of, transformer_blocks


class Adapter(nn.Module):
    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, bottleneck)
        self.up = nn.Linear(bottleneck, width)
        if not self.down.weight.is_meta:  # A tensor without values would load torch's compiler to draw none.
            nn.init.kaiming_normal_(self.down.weight, nonlinearity="relu")
        for start_at_zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(start_at_zero)

    def forward(self, hidden: Tensor) -> Tensor:
        # In a module of lower precision an adapter is float32 nevertheless.
        change: Tensor = self.up(functional.gelu(self.down(hidden.to(self.down.weight.dtype))))
        return hidden + change.to(hidden.dtype)


def add_adapters(module: nn.Module, bottleneck: int) -> None:
    for block in transformer_blocks(module, "tuning=adapter").values():
        layer = feed_forward_output(block)
        # A child module and a hook instead of a wrapper, so that the frozen parameters keep their names.
        layer.add_module("adapter", Adapter(outputs_of(layer), bottleneck))
        layer.register_forward_hook(_adapted)


def _adapted(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    adapted: Tensor = layer.get_submodule("adapter")(output)
    return adapted

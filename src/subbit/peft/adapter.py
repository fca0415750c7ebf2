"""Bottleneck adapters: h + up(GELU(down(h))), one in every block.

Houlsby et al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019.

    inside           h is the output of the feed-forward layer, before the residual sum: the text of paper 003, "after
                     the feed-forward block"; as in Pfeiffer et al., "AdapterHub", EMNLP 2020
    after-residual   h is the output of the whole block: equation 6 and figure 2 of paper 003

`up` starts at zero, so the network is initially unchanged, bit for bit.
"""

from __future__ import annotations

from typing import Any, Literal

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


Place = Literal["inside", "after-residual"]


def add_adapters(module: nn.Module, bottleneck: int, place: Place = "inside") -> None:
    for block in transformer_blocks(module, "tuning=adapter").values():
        layer = feed_forward_output(block)
        owner = layer if place == "inside" else block
        # A child module and a hook instead of a wrapper, so that the frozen parameters keep their names.
        owner.add_module("adapter", Adapter(outputs_of(layer), bottleneck))
        owner.register_forward_hook(_adapted)


def _adapted(owner: nn.Module, inputs: Any, output: Any) -> Any:
    adapter = owner.get_submodule("adapter")
    if isinstance(output, Tensor):
        return adapter(output)
    return (adapter(output[0]), *output[1:])  # Some blocks also return their attention.

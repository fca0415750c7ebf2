"""The ways of tuning: what each adds to a module, and what of the module it trains.

    full      everything
    head      the head alone
    bias      every bias: of layers, of norms, of the patch embedding (Ben Zaken et al., "BitFit", ACL 2022)
    adapter   a bottleneck after each feed-forward part
    prompt    tokens before the others in each block
    prefix    tokens before the others at the input
    lora      low-rank changes of the layers for queries and values

The head is always trained. Where modules are added, everything that was there stays frozen.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from subbit.errors import ModelError
from subbit.models.selection import select_parameters
from subbit.peft.adapter import add_adapters
from subbit.peft.lora import add_lora
from subbit.peft.prompt import add_prompts
from subbit.randomness import torch_randomness

Tuning = Literal["full", "head", "bias", "adapter", "prompt", "prefix", "lora"]
TUNINGS: tuple[Tuning, ...] = get_args(Tuning)
BIAS_PATTERNS = ("*bias", "*.bias_[ih]h_l*")
"""Names of biases; the second is how recurrent layers call theirs."""


def tune(
    module: nn.Module, tuning: Tuning, key: int, *, bottleneck: int, prompt_tokens: int, rank: int, alpha: int
) -> str:
    """Add what this tuning trains, in place, with values drawn from the key; the selection of what is trained."""
    if tuning == "full":
        return "all"
    if tuning == "head":
        return "head"
    if tuning == "bias":
        return _biases(module)
    with torch_randomness(key):
        if tuning == "adapter":
            add_adapters(module, bottleneck)
            return "*.adapter.* + head"
        if tuning == "lora":
            add_lora(module, rank, alpha)
            return "*.lora_[AB].* + head"
        add_prompts(module, prompt_tokens, deep=tuning == "prompt")
        return "*.prompt.tokens + head"


def _biases(module: nn.Module) -> str:
    patterns = []
    for pattern in BIAS_PATTERNS:
        try:
            select_parameters(module, pattern)
        except ModelError:
            continue  # Matches nothing.
        patterns.append(pattern)
    if not patterns:
        raise ModelError(f"tuning=bias: {type(module).__name__} has no biases")
    return " + ".join([*patterns, "head"])

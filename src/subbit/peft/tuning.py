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

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from torch import nn

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_randomness
from subbit.core.registry import make_registry, register
from subbit.core.values import require
from subbit.models.select import select_parameters
from subbit.peft.adapter import add_adapters
from subbit.peft.lora import add_lora
from subbit.peft.prompt import add_prompts

TUNINGS = make_registry("tuning")
BIAS_PATTERNS = ("*bias", "*.bias_[ih]h_l*")
"""Names of biases; the second is how recurrent layers call theirs."""


class Tuning(Protocol):
    name: ClassVar[str]

    def tune(self, module: nn.Module, key: int) -> str:
        """Add what this tuning trains, in place, with values drawn from the key; the selection of what is trained."""


@register("tuning", "full")
@dataclass(frozen=True)
class Full:
    """Everything."""

    name: ClassVar[str] = "full"

    def tune(self, module: nn.Module, key: int) -> str:
        return "all"


@register("tuning", "head")
@dataclass(frozen=True)
class Head:
    """The head alone."""

    name: ClassVar[str] = "head"

    def tune(self, module: nn.Module, key: int) -> str:
        return "head"


@register("tuning", "bias")
@dataclass(frozen=True)
class Bias:
    """Every bias."""

    name: ClassVar[str] = "bias"

    def tune(self, module: nn.Module, key: int) -> str:
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


@register("tuning", "adapter")
@dataclass(frozen=True)
class Adapter:
    """A bottleneck after each feed-forward part."""

    name: ClassVar[str] = "adapter"
    bottleneck: int = 8
    """Width of an adapter."""

    def __post_init__(self) -> None:
        require(self.bottleneck >= 1, f"bottleneck={self.bottleneck}: needs at least 1")

    def tune(self, module: nn.Module, key: int) -> str:
        with torch_randomness(key):
            add_adapters(module, self.bottleneck)
        return "*.adapter.* + head"


@register("tuning", "prompt")
@dataclass(frozen=True)
class Prompt:
    """Tokens before the others in each block."""

    name: ClassVar[str] = "prompt"
    prompt_tokens: int = 10
    """Tokens added to each block."""

    def __post_init__(self) -> None:
        require(self.prompt_tokens >= 1, f"prompt_tokens={self.prompt_tokens}: needs at least 1")

    def tune(self, module: nn.Module, key: int) -> str:
        with torch_randomness(key):
            add_prompts(module, self.prompt_tokens, deep=self.name == "prompt")
        return "*.prompt.tokens + head"


@register("tuning", "prefix")
@dataclass(frozen=True)
class Prefix(Prompt):
    """Tokens before the others at the input."""

    name: ClassVar[str] = "prefix"


@register("tuning", "lora")
@dataclass(frozen=True)
class Lora:
    """Low-rank changes of the layers for queries and values."""

    name: ClassVar[str] = "lora"
    lora_rank: int = 4
    lora_alpha: int = 8
    lora_mean: Literal["factors", "product"] = "factors"
    """What the server averages: A and B each by itself, or BA."""

    def __post_init__(self) -> None:
        for key in ("lora_rank", "lora_alpha"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")

    def tune(self, module: nn.Module, key: int) -> str:
        with torch_randomness(key):
            add_lora(module, self.lora_rank, self.lora_alpha)
        return "*.lora_[AB].* + head"

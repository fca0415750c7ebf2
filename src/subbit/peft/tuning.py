"""The available tunings: what each adds to a module, and which parameters it trains.

    full      everything
    head      the head only
    bias      every bias: of layers, of norms, of the patch embedding (Ben Zaken et al., "BitFit", ACL 2022)
    adapter   a bottleneck in each block, after its feed-forward layer or at its end
    prompt    tokens prepended in each block
    prefix    tokens prepended at the input
    lora      low-rank changes of the query and value layers, or of others that are named

The head is always trained; the output layer of a language model is not, except by `full` and `head`. If modules are
added, all existing parameters stay frozen.
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
from subbit.peft.adapter import Place, add_adapters
from subbit.peft.lora import add_lora, trained_head
from subbit.peft.prompt import add_prompts
from subbit.peft.targets import AUTO

TUNINGS = make_registry("tuning")
BIAS_PATTERNS = ("*bias", "*.bias_[ih]h_l*")
"""Name patterns of biases; the second is for recurrent layers."""


class Tuning(Protocol):
    name: ClassVar[str]

    def tune(self, module: nn.Module, key: int) -> str:
        """Add what this tuning trains, in place, with values drawn from the key; returns the selection of what is
        trained."""


@register("tuning", "full")
@dataclass(frozen=True)
class Full:
    """Trains everything."""

    name: ClassVar[str] = "full"

    def tune(self, module: nn.Module, key: int) -> str:
        return "all"


@register("tuning", "head")
@dataclass(frozen=True)
class Head:
    """Trains only the head."""

    name: ClassVar[str] = "head"

    def tune(self, module: nn.Module, key: int) -> str:
        return "head"


@register("tuning", "bias")
@dataclass(frozen=True)
class Bias:
    """Trains every bias."""

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
        return _and_head(module, " + ".join(patterns))


@register("tuning", "adapter")
@dataclass(frozen=True)
class Adapter:
    """Adds a bottleneck to each block, after its feed-forward layer or at its end."""

    name: ClassVar[str] = "adapter"
    bottleneck: int = 8
    """Width of an adapter."""
    adapter_place: Place = "inside"
    """Before the residual sum that ends a block, or behind it."""

    def __post_init__(self) -> None:
        require(self.bottleneck >= 1, f"bottleneck={self.bottleneck}: needs at least 1")

    def tune(self, module: nn.Module, key: int) -> str:
        with torch_randomness(key):
            add_adapters(module, self.bottleneck, self.adapter_place)
        return _and_head(module, "*.adapter.*")


@register("tuning", "prompt")
@dataclass(frozen=True)
class Prompt:
    """Prepends tokens in each block."""

    name: ClassVar[str] = "prompt"
    prompt_tokens: int = 10
    """Tokens added to each block."""

    def __post_init__(self) -> None:
        require(self.prompt_tokens >= 1, f"prompt_tokens={self.prompt_tokens}: needs at least 1")

    def tune(self, module: nn.Module, key: int) -> str:
        with torch_randomness(key):
            add_prompts(module, self.prompt_tokens, deep=self.name == "prompt")
        return _and_head(module, "*.prompt.tokens")


@register("tuning", "prefix")
@dataclass(frozen=True)
class Prefix(Prompt):
    """Prepends tokens at the input."""

    name: ClassVar[str] = "prefix"


@register("tuning", "lora")
@dataclass(frozen=True)
class Lora:
    """Adds low-rank changes to the query and value layers, or to others."""

    name: ClassVar[str] = "lora"
    lora_rank: int = 4
    lora_alpha: int = 8
    lora_mean: Literal["factors", "product"] = "factors"
    """What the server averages: A and B separately, or BA."""
    lora_targets: str = AUTO
    """Layers that are changed, by the end of their name or a pattern, e.g. "q_proj, v_proj". `auto`: queries and
    values; peft's own choice for other transformers; all convolutions of a network without attention."""

    def __post_init__(self) -> None:
        for key in ("lora_rank", "lora_alpha"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")

    def tune(self, module: nn.Module, key: int) -> str:
        with torch_randomness(key):
            add_lora(module, self.lora_rank, self.lora_alpha, self.lora_targets)
        return _and_head(module, "*.lora_[AB].*")


def _and_head(module: nn.Module, selection: str) -> str:
    return selection if trained_head(module) is None else f"{selection} + head"

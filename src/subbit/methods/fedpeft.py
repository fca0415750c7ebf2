"""FedPEFT: a frozen backbone, a few parameters that are tuned and sent; every tuning with every compressor.

Sun, Khalid, Mendieta, Yang, Wang, Lee, Chen: "Conquering the Communication Constraints to Enable Large Pre-Trained
Models in Federated Learning", 2022 (paper 003). Delta is what `tuning` trains, the head always among it; all else is
known to everyone before the first round and never sent.

    down   delta
    client delta_k = delta after E epochs (paper: of SGD), drawn towards the received one by `regulariser` or not
    up     delta_k - delta, float32 or through `codec`
    server delta <- delta + sum_k n_k (delta_k - delta) / sum_k n_k

Modules that are added start from values drawn from the seed, the same for everyone. What is added, where, and what is
trained of the module itself: `subbit.peft.tuning`.

The mean of LoRA's factors is not the factors of the mean: mean(B_k) mean(A_k) differs from mean(B_k A_k) as soon as
clients differ in both. `lora_mean="product"` averages products and broadcasts the best factors of that rank, see
`subbit.peft.products`; the paper's is "factors".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from torch import nn

from subbit.aggregate import TrimmedMean, WeightedMean
from subbit.config.values import require
from subbit.methods.base import Payloads, State, Task, as_float32
from subbit.methods.regularisers import RegularisedMethod, RegularisedParameters
from subbit.peft.products import Factors, find_factors, products, with_products
from subbit.peft.tuning import Tuning, tune

PAPER_RATES: dict[Tuning, float] = {
    "full": 0.001,
    "head": 0.005,
    "bias": 0.01,
    "adapter": 0.005,
    "prompt": 0.01,
    "prefix": 0.01,
    "lora": 0.005,
}
"""Of SGD, as the paper has them; it has none for `prefix` and `lora`, which get those of what is most like them."""
RATES: dict[str, dict[Tuning, float]] = {
    "adam": {
        "full": 0.0005,
        "head": 0.01,
        "bias": 0.005,
        "adapter": 0.005,
        "prompt": 0.01,
        "prefix": 0.01,
        "lora": 0.005,
    },
    "sgd": {
        "full": 0.1,
        "head": 0.05,
        "bias": 0.05,
        "adapter": 0.05,
        "prompt": 0.1,
        "prefix": 0.1,
        "lora": 0.05,
    },
}
"""By optimiser, for tens of steps, where the paper takes thousands; SGD with momentum."""


@dataclass(frozen=True)
class FedPeftParameters(RegularisedParameters):
    tuning: Tuning = "bias"
    learning_rate: float | Literal["auto", "paper"] = "auto"  # type: ignore[assignment]
    """`auto`: that of the tuning with this optimiser; `paper`: that of the tuning with SGD, as the paper has it."""
    bottleneck: int = 8
    """Width of an adapter."""
    prompt_tokens: int = 10
    """Length of a prompt or prefix."""
    lora_rank: int = 4
    lora_alpha: int = 8
    lora_mean: Literal["factors", "product"] = "factors"
    """What the server averages of LoRA: A and B each by itself, or BA."""

    def __post_init__(self) -> None:
        if isinstance(self.learning_rate, str):
            rates = RATES[self.optimizer] if self.learning_rate == "auto" else PAPER_RATES
            # The number itself: what the run folder records is what was used.
            object.__setattr__(self, "learning_rate", rates[self.tuning])
        super().__post_init__()
        for key in ("bottleneck", "prompt_tokens", "lora_rank", "lora_alpha"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")
        if self.lora_mean == "product":
            plain = self.aggregator == "mean" and self.clip_norm is None and not self.remembers_losses
            require(self.tuning == "lora", f"lora_mean=product: tuning={self.tuning} has no products")
            # A residual would be added to factors that have been turned meanwhile.
            require(plain, "lora_mean=product: needs aggregator=mean without clip_norm and error_feedback")


class FedPeft(RegularisedMethod[FedPeftParameters]):
    name = "fedpeft"
    title = "FedPEFT: biases, adapters, prompts or LoRA on a frozen backbone"
    paper = "003"
    citation = (
        "Sun et al., Conquering the Communication Constraints to Enable Large Pre-Trained Models in Federated "
        "Learning, 2022"
    )
    sends_up = "change of the tuned parameters and the head, float32 or compressed"
    sends_down = "tuned parameters and head, float32, or their compressed change"
    Parameters = FedPeftParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": "paper", "momentum": 0.0, "weight_decay": 1e-4}
        | {"epochs": 10, "batch_size": 64},
    }

    def __init__(self, parameters: FedPeftParameters, task: Task) -> None:
        super().__init__(parameters, task)
        wanted = parameters.lora_mean == "product"
        self.factors: list[Factors] = find_factors(task.flat.template) if wanted else []

    @classmethod
    def prepare(cls, module: nn.Module, parameters: FedPeftParameters, classes: int, key: int) -> str | None:
        return tune(
            module,
            parameters.tuning,
            key,
            bottleneck=parameters.bottleneck,
            prompt_tokens=parameters.prompt_tokens,
            rank=parameters.lora_rank,
            alpha=parameters.lora_alpha,
        )

    # The mean of products travels with that of the changes, as more places of the same accumulator.

    def accumulator(self) -> WeightedMean | TrimmedMean:
        if not self.factors:
            return super().accumulator()
        sizes = [part.size for part in self.up_parts()] + [layer.inputs * layer.outputs for layer in self.factors]
        return WeightedMean(sum(sizes))

    def accumulate(
        self,
        accumulator: WeightedMean | TrimmedMean,
        view: Any,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        if not self.factors:
            super().accumulate(accumulator, view, payloads, examples, round_number, client)
            return
        trained = view["weights"].astype(np.float64) + payloads["weights"]
        changes = [payloads[part.name] for part in self.up_parts()]
        accumulator.add(np.concatenate([*changes, products(self.factors, trained)]), examples)

    def step(self, state: State, accumulator: WeightedMean | TrimmedMean, round_number: int) -> State:
        if not self.factors or not isinstance(accumulator, WeightedMean):
            return super().step(state, accumulator, round_number)
        if not accumulator.weight:
            return state  # Nobody had an example: the mean of no products is not zero.
        size = sum(part.size for part in self.up_parts())
        mean = accumulator.mean()
        changes = WeightedMean(size)
        changes.add(mean[:size], 1)
        after = super().step(state, changes, round_number)
        weights = np.asarray(after["weights"], dtype=np.float64)
        after["weights"] = as_float32(with_products(self.factors, weights, mean[size:]))
        return after

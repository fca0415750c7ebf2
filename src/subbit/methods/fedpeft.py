"""FedPEFT: a frozen backbone and a few parameters that are tuned and sent; any tuning works with any codec.

Sun, Khalid, Mendieta, Yang, Wang, Lee, Chen: "Conquering the Communication Constraints to Enable Large Pre-Trained
Models in Federated Learning", 2022 (paper 003). Delta is what `tuning` trains, always including the head; everything
else is known to all sides before the first round and never sent.

    down   delta
    client delta_k = delta after E epochs (paper: of SGD), optionally pulled towards the received one by `regulariser`
    up     delta_k - delta, float32 or through `codec`
    server delta <- delta + sum_k n_k (delta_k - delta) / sum_k n_k

Added modules are initialised from the seed, the same on all sides. `subbit.peft.tuning` describes what is added, where,
and which of the module's own parameters are trained.

Averaging LoRA's factors does not average their products: mean(B_k) mean(A_k) differs from mean(B_k A_k) as soon as
clients differ in both. `lora_mean="product"` averages products and broadcasts the best factors of that rank, see
`subbit.peft.products`; the paper uses "factors".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import nn

from subbit.aggregate import WeightedMean
from subbit.core.pieces import choice
from subbit.core.values import require
from subbit.exchange.exchange import Payloads, State, as_float32
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.local.optimizers import kept_vectors
from subbit.local.trainer import LocalWeights, Trainer
from subbit.maps.weights import Weights
from subbit.methods.method import Method
from subbit.models.task import Task
from subbit.peft.products import Factors, find_factors, products, with_products
from subbit.peft.tuning import Bias, Lora, Tuning

PAPER_RATES = {
    "full": 0.001,
    "head": 0.005,
    "bias": 0.01,
    "adapter": 0.005,
    "prompt": 0.01,
    "prefix": 0.01,
    "lora": 0.005,
}
"""For SGD, from the paper. It has none for `prefix` and `lora`, which use those of the most similar tunings."""
ADAM_RATES = {
    "full": 0.00005,
    "head": 0.01,
    "bias": 0.0005,
    "adapter": 0.0005,
    "prompt": 0.003,
    "prefix": 0.01,
    "lora": 0.0005,
}
"""Networks survive these that were trained by others, where the rate falls over the rounds (docs/methods.md). Where
there is more to learn, ten times as much may be better."""
SGD_RATES = {"full": 0.1, "head": 0.05, "bias": 0.05, "adapter": 0.05, "prompt": 0.1, "prefix": 0.1, "lora": 0.05}
"""For tens of steps, where the paper takes thousands. SGD has momentum; all other optimisers use Adam's rates."""


@dataclass(frozen=True)
class FedPeftParameters:
    tuning: Tuning = choice("tuning", Bias())
    local: LocalWeights = LocalWeights(learning_rate="auto", schedule="auto")
    """`learning_rate=auto`: the tuning's default for this optimiser; `paper`: the tuning's rate for SGD in the
    paper. `schedule=auto`: cosine with a default rate, constant for SGD and with a rate that is given."""
    up: VectorUp = VectorUp()
    down: VectorDown = VectorDown()
    aggregate: VectorAggregate = VectorAggregate()

    def __post_init__(self) -> None:
        rate, tuning, sgd = self.local.learning_rate, self.tuning, self.local.optimizer.name == "sgd"
        if self.local.schedule == "auto":
            falls = rate == "auto" and not sgd
            object.__setattr__(self, "local", replace(self.local, schedule="cosine" if falls else "constant"))
        if isinstance(rate, str):
            own = SGD_RATES if sgd else ADAM_RATES
            rates = own if rate == "auto" else PAPER_RATES
            # Store the number, so that the run folder records the rate that was used.
            known = rates.get(tuning.name, rates["lora"])
            object.__setattr__(self, "local", replace(self.local, learning_rate=known))
        if self.averages_products:
            plain = self.aggregate.aggregator.name == "mean" and self.aggregate.clip_norm is None
            # A residual would be added to factors that have been rotated in the meantime.
            plain = plain and not self.up.feeds_back
            require(plain, "lora_mean=product: needs aggregator=mean without clip_norm and error_feedback")

    @property
    def optimiser_vectors(self) -> int:
        """How many vectors, as long as the trained one, the optimiser keeps."""
        return kept_vectors(self.local.optimizer)

    @property
    def averages_products(self) -> bool:
        return isinstance(self.tuning, Lora) and self.tuning.lora_mean == "product"


class FedPeft(Method[FedPeftParameters]):
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
        self.map = Weights(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange: VectorExchange = VectorExchange(task, parameters, self.map)
        self.factors: list[Factors] = find_factors(task.flat.template) if parameters.averages_products else []

    @classmethod
    def prepare(cls, module: nn.Module, parameters: FedPeftParameters, classes: int, key: int) -> str | None:
        return parameters.tuning.tune(module, key)

    # The mean of products uses the same accumulator as the mean of changes, as extra entries.

    def accumulator(self) -> Any:
        if not self.factors:
            return super().accumulator()
        sizes = [part.size for part in self.up_parts()] + [layer.inputs * layer.outputs for layer in self.factors]
        return WeightedMean(sum(sizes))

    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        if not self.factors:
            super().accumulate(accumulator, view, payloads, examples, round_number, client)
            return
        trained = view["weights"].astype(np.float64) + payloads["weights"]
        changes = [payloads[part.name] for part in self.up_parts()]
        accumulator.add(np.concatenate([*changes, products(self.factors, trained)]), examples)

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        if not self.factors:
            return super().step(state, accumulator, round_number)
        if not accumulator.weight:
            return state  # No examples, so there is no mean of products.
        size = sum(part.size for part in self.up_parts())
        mean = accumulator.mean()
        after = self.exchange.moved(state, mean[:size], round_number)
        weights = np.asarray(after["weights"], dtype=np.float64)
        after["weights"] = as_float32(with_products(self.factors, weights, mean[size:]))
        return after

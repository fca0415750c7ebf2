"""HideNseek: the signs of the weights that survive a pruning without data.

Vallapuram, Zhou, Kwon, Lee, Xu, Hui: "HideNseek: Federated Lottery Ticket via Server-side Pruning and Sign Supermask",
2022. Only the abstract and its references were at hand: what was decided beyond them is in `docs/methods.md`.

    before   the frozen weights w0 are pruned once, by synaptic saliency and without data (`subbit.models.pruning`);
             both sides do it from w0, nothing is sent
    down     s, the mean of the clients' signs over the survivors, as the number of +1 among them
    client   every step descends on L(w), w = w0 * sign(s) on the survivors and 0 elsewhere, sign(0) = 1;
             straight through: dL/ds = dL/dw * w0 where |s| <= 1, and s stays there
    up       sign(s), one bit per survivor: keep * d bits
    server   s = mean of the signs;  the network is w0 * sign(s)

The name of the broadcast holds a hash of the survivors, so a client that pruned otherwise refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from subbit.aggregate import MaskCounts
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.bits import count_ones, pack_bits
from subbit.codecs.sampler import thresholds_of_counts, uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.base import Method, Part, Payloads, State, Task, Turn, Update
from subbit.methods.local import LocalTraining, train_locally
from subbit.methods.masks import MOST_MASKS, MaskMethod, counts_of
from subbit.models.pruning import input_of_ones, surviving_places
from subbit.models.reparametrisation import SignMask
from subbit.randomness import derive_key


@dataclass(frozen=True)
class HideNseekParameters(LocalTraining):
    learning_rate: float = 0.3
    """A sign on which all clients agree turns after 1 / learning_rate steps of Adam: in a shorter turn none does."""
    keep: float = 0.5
    """Share of the weights that survives, and nearly the bits per parameter of the uplink."""
    prune_iterations: int = 1
    saliency: Literal["synflow", "magnitude"] = "synflow"
    """`magnitude` keeps the largest weights, without a forward pass: for modules that cannot compute in float64."""
    prune_scope: Literal["tensor", "network"] = "tensor"
    """The same share of every tensor, or the best of all together."""
    score_init: float | Literal["auto", "uniform"] = "auto"
    """Every score at the start; `uniform`: drawn from [-1, 1]; `auto`: 1 on pre-trained weights, else uniform."""
    codec: Literal["mask", "range", "packed"] = "mask"
    """`mask` takes the smallest, with the broadcast counts as prior; `packed` costs one bit per survivor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.keep <= 1, f"keep={self.keep}: needs a share above 0, at most 1")
        require(self.prune_iterations >= 1, f"prune_iterations={self.prune_iterations}: needs at least 1")
        if isinstance(self.score_init, float):
            require(-1 <= self.score_init <= 1, f"score_init={self.score_init}: needs a number between -1 and 1")


class HideNseek(Method[HideNseekParameters]):
    name = "hidenseek"
    title = "HideNseek: signs of the weights that survive a pruning without data"
    paper = "000 (related)"
    citation = "Vallapuram et al., HideNseek: Federated Lottery Ticket via Server-side Pruning and Sign Supermask, 2022"
    sends_up = "one sign per surviving weight, entropy-coded (paper: packed)"
    sends_down = "mean signs of the survivors, as entropy-coded counts"
    Parameters = HideNseekParameters
    presets: ClassVar = {"default": {}, "paper": {"codec": "packed", "prune_scope": "network"}}
    networks = ("signs", "mean")
    primary_network = "signs"
    trains_added_values = False
    default_selection = staticmethod(MaskMethod.default_selection)

    def __init__(self, parameters: HideNseekParameters, task: Task) -> None:
        super().__init__(parameters, task)
        require(
            task.participants <= MOST_MASKS, f"{task.participants} clients a round: at most {MOST_MASKS} signs add up"
        )
        ones = input_of_ones(task.input_shape, task.input_type) if parameters.saliency == "synflow" else None
        per_tensor = parameters.prune_scope == "tensor"
        places = surviving_places(task.flat, ones, parameters.keep, parameters.prune_iterations, per_tensor)
        self.kept = len(places)
        self.broadcast_name = "signs-" + blake2b(places.astype("<i8").tobytes(), digest_size=4).hexdigest()
        self.reparametrisation = SignMask(task.flat.initial, torch.from_numpy(places))

    # What travels: counts of +1 down, signs up.

    def down_parts(self) -> tuple[Part, ...]:
        return (Part(self.broadcast_name, make_codec("counts"), self.kept),)

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("signs", make_codec(self.parameters.codec), self.kept),)

    def open(self, payloads: Payloads, round_number: int) -> Counts:
        counts: Counts = payloads[self.broadcast_name]
        return counts

    def shared(self, part: Part, view: Counts | None, round_number: int, client: int) -> Shared:
        if view is None:
            return Shared(self.kept, limit=self.task.participants)
        # What most clients chose, a client will likely choose again.
        prior = thresholds_of_counts(view.total, "mean")[view.values]
        return Shared(self.kept, key=derive_key(self.task.seed, "codec", round_number, client), thresholds=prior)

    def scores(self, counts: Counts) -> Tensor:
        if counts.total == 0:
            return self.initial_scores()
        balance = 2 * counts.values.astype(np.int64) - counts.total
        return torch.from_numpy((balance / counts.total).astype(np.float32))

    def initial_scores(self) -> Tensor:
        """Known to everybody from the configuration: the first broadcast is an empty count."""
        start = self.parameters.score_init
        if start == "auto":
            start = 1.0 if self.task.pretrained else "uniform"
        if isinstance(start, float):
            return torch.full((self.kept,), start)
        drawn = uniforms(derive_key(self.task.seed, "initial-scores"), 0, self.kept)
        return torch.from_numpy((drawn / 2.0**31 - 1).astype(np.float32))

    # The server half.

    def start(self) -> State:
        return {"counts": np.zeros(self.kept, dtype=np.uint16), "total": 0}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {self.broadcast_name: counts_of(state)}

    def accumulator(self) -> MaskCounts:
        return MaskCounts(self.kept)

    def accumulate(
        self, accumulator: MaskCounts, view: Counts, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.add(payloads["signs"])

    def step(self, state: State, accumulator: MaskCounts, round_number: int) -> State:
        return {"counts": accumulator.counts, "total": accumulator.total}

    # The client half.

    def train(self, view: Counts, data: Examples, turn: Turn) -> Update:
        scores = self.scores(view)
        before = pack_bits((scores >= 0).numpy())
        constrain = partial(torch.clamp_, min=-1, max=1)
        loss = train_locally(
            self.task, self.parameters, self.reparametrisation, scores, data, turn, constrain=constrain
        )
        signs = pack_bits((scores >= 0).numpy())
        return Update({"signs": signs}, len(data), {"loss": loss, "flips": count_ones(signs ^ before)})

    # Evaluation.

    def write_network(self, state: State, network: str, key: int) -> None:
        scores, weights = self.scores(counts_of(state)), self.task.flat.weights
        if network == "mean":
            self.reparametrisation.scaled(scores, weights)
        else:
            self.reparametrisation.write(scores, weights, key)

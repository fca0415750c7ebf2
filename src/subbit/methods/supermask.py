"""Supermask: keeps each weight of a random network with a learned probability.

Zhou, Lan, Liu, Yosinski: "Deconstructing Lottery Tickets: Zeros, Signs, and the Supermask", NeurIPS 2019.

    before   s = 0, so that every weight is kept with probability theta = sigmoid(s) = 1/2
    client   every step draws m ~ Bern(theta) and descends on L(w0 * m), straight through to theta
    network  w0 * m of fresh draws (`sampled`); the best of `best_of` draws, judged on the training data (`best`);
             w0 * theta (`expected`); w0 * [theta >= 1/2] (`thresholded`)

The origin of all stochastic masks here, and a reference: with clients=1 it is the centralised algorithm, see
`subbit.exchange.whole_scores`. The accuracies of the other networks show the cost of randomness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from subbit.aggregate import WeightedMean
from subbit.codecs import Vector, make_codec
from subbit.core.devices import number
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, State, Update, as_float32
from subbit.exchange.honest import check_not_negative, check_within, largest
from subbit.exchange.vectors import VectorExchange
from subbit.exchange.whole_scores import central_exchange
from subbit.local.kept_moments import CentralTrainer
from subbit.local.training import Local
from subbit.maps.bound import BoundMap
from subbit.maps.masks import select_blocks
from subbit.methods.method import Method
from subbit.models.popup import RescaledMask, signed_weights
from subbit.models.reparametrisation import SCORE_LIMIT, BernoulliMask, clamp_scores_
from subbit.models.task import Task, Turn
from subbit.objectives.classes import Classification

CANDIDATE_BATCH = 128
CANDIDATES = "candidates"


@dataclass(frozen=True)
class CoinMap:
    name: ClassVar[str] = "coins"
    trains_weights: ClassVar[bool] = False
    theta_init: float = 0.5
    """Initial probability of a one. On pre-trained weights, 1/2 halves each of them in expectation."""
    weights: Literal["keep", "signed"] = "keep"
    """The frozen weights: the module's own, or their signs times the standard deviation of their tensor."""
    rescale: bool = False
    """Multiply the weights of a tensor by size / ones of the sampled mask."""
    best_of: int = 10
    """How many masks are drawn for the network `best`: the one with the most correct answers on the training data."""
    evaluation: Literal["expected", "sampled", "thresholded", "best"] = "expected"
    """The network whose accuracy is reported as the run's accuracy."""

    def __post_init__(self) -> None:
        require(0 < self.theta_init < 1, f"theta_init={self.theta_init}: needs a probability between 0 and 1")
        require(1 <= self.best_of <= 10_000, f"best_of={self.best_of}: needs 1 to 10000")

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return select_blocks(blocks, pretrained)

    def bind(self, task: Task) -> Coins:
        return Coins(self, task)


class Coins(BoundMap):
    vector = "scores"
    networks = ("expected", "sampled", "thresholded", "best")
    network: BernoulliMask

    def __init__(self, piece: CoinMap, task: Task) -> None:
        self.piece, self.task, self.size = piece, task, task.flat.template.size
        self.primary = piece.evaluation
        self.frozen, template = task.flat.initial, task.flat.template
        if piece.weights == "signed":
            self.frozen = signed_weights(self.frozen, template, "deviation")
        self.network = RescaledMask(self.frozen, template) if piece.rescale else BernoulliMask(self.frozen)

    def start(self) -> Vector:
        theta = self.piece.theta_init
        return np.full(self.size, np.log(theta / (1 - theta)), dtype=np.float32)

    def constrain(self, trained: Tensor) -> object:
        return clamp_scores_(trained)

    def farthest(self) -> float:
        return max(SCORE_LIMIT, largest(self.start()))

    def write(self, vector: Vector, network: str, key: int) -> None:
        scores, weights = self.task.flat.place(vector), self.task.flat.weights
        if network == "expected":
            self.network.expected(scores, weights)
        elif network == "thresholded":
            self.network.thresholded(scores, weights)
        else:
            self.network.write(scores, weights, key)


@dataclass(frozen=True)
class SupermaskParameters:
    map: CoinMap = CoinMap()
    local: Local = Local(learning_rate=0.1)


class Supermask(Method[SupermaskParameters]):
    name = "supermask"
    title = "Supermask: a stochastic mask, trained in one place"
    paper = "002 (baseline)"
    citation = "Zhou et al., Deconstructing Lottery Tickets: Zeros, Signs, and the Supermask, NeurIPS 2019"
    sends_up = "scores, float32, and how good each of a few sampled masks is"
    sends_down = "scores, float32"
    Parameters = SupermaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"optimizer": "sgd", "learning_rate": 100.0, "batch_size": 250}
        | {"weights": "signed", "rescale": True, "evaluation": "sampled"},
    }
    exchange: VectorExchange

    def __init__(self, parameters: SupermaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.bind(task)
        self.trainer = CentralTrainer(task, parameters.local, self.map)
        self.exchange = central_exchange(task, self.map)
        self.best_of = parameters.map.best_of

    # The best of several masks is chosen on the training data, never on the test set.

    def up_parts(self) -> tuple[Part, ...]:
        return (*self.exchange.up_parts(), Part(CANDIDATES, make_codec("dense"), self.best_of))

    def start(self) -> State:
        return {**self.exchange.start(), "best": 0}

    def train(self, view: Any, data: Data, turn: Turn) -> Update:
        scores = self.exchange.trained(view)
        observed = self.trainer.train(scores, data, turn)
        payloads, _ = self.exchange.say(view, scores, turn)
        right = np.zeros(self.best_of, dtype=np.float32)
        if turn.round_number + 1 == self.task.rounds:  # Needed in the last round only.
            for candidate in range(self.best_of):
                self.map.network.write(
                    scores.to(self.task.flat.device), self.task.flat.weights, self._candidate_key(candidate)
                )
                right[candidate] = self._share_right(data)
        return Update({**payloads, CANDIDATES: right}, len(data), observed)

    def _candidate_key(self, candidate: int) -> int:
        return derive_key(self.task.seed, "candidate-mask", candidate)

    def _share_right(self, data: Data) -> float:
        """Or, where there is nothing to be right about, a number that falls from 1 to 0 with the loss."""
        if not isinstance(self.task.objective, Classification):
            return 1 / (1 + max(0.0, self.task.mean_loss(data, CANDIDATE_BATCH)))
        self.task.flat.evaluation_mode()
        with torch.no_grad():
            tallies = (
                self.task.objective.tally(self.task.outputs(batch), batch)
                for batch in self.task.in_batches(data, CANDIDATE_BATCH)
            )
            return sum(number(tally[:, 0].sum()) for tally in tallies) / len(data)

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        self.exchange.examine(view, payloads, examples, client)
        check_within(payloads[CANDIDATES], 1.0, CANDIDATES)
        check_not_negative(payloads[CANDIDATES], "the share of right answers of a mask")

    def accumulator(self) -> WeightedMean:
        return WeightedMean(self.size + self.best_of)

    def accumulate(
        self, accumulator: WeightedMean, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.add(np.concatenate([payloads[part.name] for part in self.up_parts()]), examples)

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        if not accumulator.weight:
            return state  # No examples, so there is no mean.
        # The mean of the clients' accuracies, weighted by examples, is the accuracy on all examples.
        scores, right = np.split(accumulator.mean(), [self.size])
        return {**self.exchange.moved(state, scores, round_number), "best": int(np.argmax(as_float32(right)))}

    def write_network(self, state: State, network: str, key: int) -> None:
        chosen = self._candidate_key(int(state["best"])) if network == "best" else key
        self.exchange.write(state, network, chosen)

"""Supermask: which weights of a random network to keep, each by the toss of its own coin.

Zhou, Lan, Liu, Yosinski: "Deconstructing Lottery Tickets: Zeros, Signs, and the Supermask", NeurIPS 2019.

    before   s = 0, so that every weight is kept with probability theta = sigmoid(s) = 1/2
    client   every step draws m ~ Bern(theta) and descends on L(w0 * m), straight through to theta
    network  w0 * m of fresh draws (`sampled`); the best of `best_of` draws, judged on the training data (`best`);
             w0 * theta (`expected`); w0 * [theta >= 1/2] (`thresholded`)

The root of all stochastic masks here, and a reference: with clients=1 it is the central algorithm, see
`subbit.methods.central`. The other networks' accuracies tell what its randomness costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import WeightedMean
from subbit.codecs import make_codec
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.exchange.honest import check_not_negative, largest
from subbit.methods.base import Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.central import CentralScores
from subbit.methods.local import LocalTraining
from subbit.models.popup import RescaledMask, signed_weights
from subbit.models.reparametrisation import SCORE_LIMIT, BernoulliMask, clamp_scores_
from subbit.randomness import derive_key

CANDIDATE_BATCH = 128


@dataclass(frozen=True)
class SupermaskParameters(LocalTraining):
    learning_rate: float = 0.1
    theta_init: float = 0.5
    """Chance of a one at the start. On pre-trained weights 1/2 halves every one of them."""
    weights: Literal["keep", "signed"] = "keep"
    """The frozen weights: the module's own, or their signs times the standard deviation of their tensor."""
    rescale: bool = False
    """Multiply the weights of a tensor by size / ones of the mask that was drawn."""
    best_of: int = 10
    """Masks of which the network `best` is the one with the most right answers on the training data."""
    evaluation: Literal["expected", "sampled", "thresholded", "best"] = "expected"
    """Which network's accuracy is the accuracy of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.theta_init < 1, f"theta_init={self.theta_init}: needs a probability between 0 and 1")
        require(1 <= self.best_of <= 10_000, f"best_of={self.best_of}: needs 1 to 10000")


class Supermask(CentralScores[SupermaskParameters]):
    name = "supermask"
    title = "Supermask: a stochastic mask of a frozen network, trained in one place"
    paper = "002 (baseline)"
    citation = "Zhou et al., Deconstructing Lottery Tickets: Zeros, Signs, and the Supermask, NeurIPS 2019"
    sends_up = "scores, float32, and how good each of a few sampled masks is"
    Parameters = SupermaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {
            "optimizer": "sgd",
            "learning_rate": 100.0,
            "batch_size": 250,
            "weights": "signed",
            "rescale": True,
            "evaluation": "sampled",
        },
    }
    networks = ("expected", "sampled", "thresholded", "best")

    def __init__(self, parameters: SupermaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        frozen, template = task.flat.initial, task.flat.template
        if parameters.weights == "signed":
            frozen = signed_weights(frozen, template, "deviation")
        self.reparametrisation: BernoulliMask = (
            RescaledMask(frozen, template) if parameters.rescale else BernoulliMask(frozen)
        )

    @property
    def primary_network(self) -> str:
        network: str = self.parameters.evaluation
        return network

    def initial_scores(self) -> NDArray[np.float32]:
        theta = self.parameters.theta_init
        return np.full(self.size, np.log(theta / (1 - theta)), dtype=np.float32)

    def constrain(self, scores: Tensor) -> None:
        clamp_scores_(scores)

    # The best of several masks: chosen where the training data are, never by the test set.

    def up_parts(self) -> tuple[Part, ...]:
        return (*super().up_parts(), Part("candidates", make_codec("dense"), self.parameters.best_of))

    def start(self) -> State:
        return {**super().start(), "best": 0}

    def train(self, view: NDArray[np.float32], data: Examples, turn: Turn) -> Update:
        scores, loss = self.train_scores(view, data, turn)
        right = np.zeros(self.parameters.best_of, dtype=np.float32)
        if turn.round_number + 1 == self.task.rounds:  # Before the end nobody asks for the best network.
            for candidate in range(self.parameters.best_of):
                self.reparametrisation.write(scores, self.task.flat.weights, self._candidate_key(candidate))
                right[candidate] = self._share_right(data)
        return Update({"scores": scores.numpy(), "candidates": right}, len(data), {"loss": loss})

    def _candidate_key(self, candidate: int) -> int:
        return derive_key(self.task.seed, "candidate-mask", candidate)

    def _share_right(self, data: Examples) -> float:
        self.task.flat.evaluation_mode()
        right = 0
        with torch.no_grad():
            for start in range(0, len(data), CANDIDATE_BATCH):
                batch = slice(start, start + CANDIDATE_BATCH)
                predicted = self.task.flat.module(data.inputs[batch]).argmax(dim=1)
                right += int((predicted == data.labels[batch]).sum())
        return right / len(data)

    def examine(self, view: NDArray[np.float32], payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        check_not_negative(payloads["candidates"], "the share of right answers of a mask")

    def farthest(self, part: Part, view: NDArray[np.float32]) -> float:
        return 1.0 if part.name == "candidates" else max(SCORE_LIMIT, largest(self.initial_scores()))

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        # The mean over clients, weighted by examples, of their shares is the share of all examples.
        best = int(np.argmax(as_float32(accumulator.mean()[self.size :])))
        return {**super().step(state, accumulator, round_number), "best": best}

    # Evaluation.

    def write_network(self, state: State, network: str, key: int) -> None:
        scores, weights = torch.from_numpy(np.asarray(state["scores"])), self.task.flat.weights
        if network == "expected":
            self.reparametrisation.expected(scores, weights)
        elif network == "thresholded":
            self.reparametrisation.thresholded(scores, weights)
        else:
            chosen = self._candidate_key(int(state["best"])) if network == "best" else key
            self.reparametrisation.write(scores, weights, chosen)

"""signSGD with majority vote, as a plugin: `subbit run --plugin examples/sign_vote.py method=sign-vote`.

Bernstein, Wang, Azizzadenesheli, Anandkumar: "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018. A
client sends the sign of each change, one bit. The server moves every weight by `server_rate` in the direction of the
majority.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subbit import register
from subbit.aggregate import MaskCounts
from subbit.codecs import make_codec
from subbit.codecs.packed import pack_bits
from subbit.core.randomness import derive_key, numpy_generator
from subbit.exchange.exchange import Part, as_float32
from subbit.exchange.vectors import VectorExchange
from subbit.local.trainer import LocalWeights, Trainer
from subbit.maps.weights import Weights
from subbit.methods.fedavg import FedAvgParameters
from subbit.methods.method import Method


@dataclass(frozen=True)
class SignVoteParameters:
    server_rate: float = 0.01
    local: LocalWeights = LocalWeights()


class Votes(VectorExchange):
    """Sends weights down as in FedAvg and signs up, which the server aggregates by majority vote."""

    server_rate = 0.01

    def up_parts(self):
        return (Part("signs", make_codec("packed"), self.map.size),)

    def say(self, view, trained, turn):
        change = trained.numpy() - view["weights"]
        # A bit cannot represent an unchanged weight, so its sign is random.
        coins = numpy_generator(derive_key(self.task.seed, "coins", turn.round_number, turn.client))
        signs = np.where(change == 0, coins.random(change.size) < 0.5, change > 0)
        return {"signs": pack_bits(signs)}, {}

    def accumulator(self):
        return MaskCounts(self.map.size)

    def accumulate(self, accumulator, view, payloads, examples, round_number, client):
        accumulator.add(payloads["signs"])

    def step(self, state, accumulator, round_number):
        votes = 2.0 * accumulator.counts - accumulator.total
        return {**state, "weights": as_float32(state["weights"] + self.server_rate * np.sign(votes))}


@register("method", "sign-vote")
class SignVote(Method[SignVoteParameters]):
    title = "signSGD with majority vote"
    paper = "baseline"
    citation = "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML 2018"
    sends_up = "signs of the change, one bit each"
    sends_down = "trained weights, float32"
    Parameters = SignVoteParameters
    presets = {"default": {}, "paper": {"optimizer": "sgd", "learning_rate": 0.01}}  # noqa: RUF012

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.map = Weights(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = Votes(task, FedAvgParameters(), self.map)
        self.exchange.server_rate = parameters.server_rate

"""subbit: masks below one bit per parameter, both ways.

Ours. What was tried on the way, with its numbers: docs/flagship.md.

    held   the scores s on a grid, the same on all sides, bit for bit; theta = sigmoid(s)
    down   the new grid values given the old ones, entropy-coded; places that hardly moved stay
    client trains s by straight-through steps along the normalised gradient: s_k; change = s_k - s + residual
    up     the places where the change matters most, its signs, and one magnitude for all of them
           residual <- change - what was sent, kept by the client
    server s <- s + rate * mean_k(what was sent), kept in full precision

Three things differ from FedPM and DeltaMask (paper 000).

Steps follow the size of the gradient. Adam moves every score by about the same distance, whatever its gradient; but the
gradient of masks is heavy-tailed, a small share of the places holds most of its energy, and clients agree about these.

What goes up is the change of the scores and not a draw of the mask. A flip says +1 or -1 where the change is a few
hundredths, which is unbiased and very noisy; a sign with a common magnitude is nearly all there is to say about the
largest changes, and what is left out is not lost, but waits with the client (sparse ternary compression: Sattler et
al., "Robust and communication-efficient federated learning from non-i.i.d. data", 2020, there for weights).

What goes down is the change, too. The server knows what clients hold, so that rounding loses nothing for good.

`bits_per_round` is a budget: bits of one upload, header included. The method keeps the most important places that fit.
Importance is the Kullback-Leibler divergence of the mask before and after, to second order: theta (1 - theta) change^2
/ 2. (The exact divergence is lopsided: near theta = 1 it prefers every step down to any step up.)

What one client can do is bounded. An upload of more places than its share or its budget allows is refused, and so is a
magnitude that no honest client can have gathered by that round. What is larger than the range of the scores, as that of
a place that waited for long, counts as the range: one of K answers moves a score by at most 2 score_limit server_rate /
K. Which way, and where, is the client's word; `aggregator=agreement` leaves out those with whom nobody agrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.aggregate import MEDIAN, AgreeingMean, TrimmedMean, WeightedMean, share_dropped
from subbit.codecs import Counts, Shared, Vector, make_codec
from subbit.codecs.sampler import uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import PayloadError
from subbit.exchange.honest import check_within
from subbit.methods.base import Held, Part, Payloads, State, Turn, Update, as_float32
from subbit.methods.incremental import IncrementalMethod
from subbit.methods.scores import FULL, ScoreMethod, ScoreParameters, as_thresholds, scores_of_thresholds
from subbit.models.reparametrisation import SCORE_LIMIT
from subbit.randomness import derive_key
from subbit.wire.frame import HEADER_BYTES

Levels = NDArray[np.uint16]
Accumulator = WeightedMean | TrimmedMean | AgreeingMean
LEAST_PLACES = 256
"""Of an upload without a budget: so small a share of a small network would be a few bytes behind a header of forty."""
ROUNDING = 1.001
"""Slack of sums in float32."""


@dataclass(frozen=True)
class SubbitParameters(ScoreParameters):
    optimizer: Literal["adam", "sgd"] = "sgd"
    momentum: float = 0.0
    normalise: bool = True
    learning_rate: float = 1.0
    """Of normalised steps: the root mean square of what one step moves the scores by."""
    share: float = 0.0008
    """Share of the places that an upload speaks of."""
    bits_per_round: int | None = None
    """Instead of `share`: bits that one upload may take, its header included."""
    order: Literal["kl", "magnitude", "random"] = "kl"
    """Which places: largest divergence of the mask, largest change of the score, or any."""
    residuals: bool = True
    """What is not sent is added to the client's next change."""
    server_rate: float = 2.0
    """How far the server goes along the mean change."""
    step: float = 0.25
    """Of the grid on which scores go down."""
    deadzone: float = 0.125
    """A place stays as clients hold it until the server's score is so far away."""
    score_limit: float = 5.0
    """Scores stay within: a mask that is certain could never change again."""
    aggregator: Literal["mean", "agreement", "trimmed", "median"] = "mean"
    """How changes become one: all clients alike; or robustly, without those that agree least with the others, or place
    by place, where nothing said counts as zero."""
    trim: float = 0.1
    """Share of the clients, rounded up, that `agreement` leaves out and `trimmed` drops at each end of each place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.share <= 1, f"share={self.share}: needs a share above 0, at most 1")
        least = 8 * (HEADER_BYTES + 64)
        budget = self.bits_per_round
        require(budget is None or budget >= least, f"bits_per_round={budget}: needs at least {least}, or none")
        require(0 < self.server_rate < 100, f"server_rate={self.server_rate}: needs a number above 0, below 100")
        require(0 < self.score_limit <= 10, f"score_limit={self.score_limit}: needs a number above 0, at most 10")
        require(
            self.score_limit / 1000 <= self.step <= self.score_limit,
            f"step={self.step}: needs score_limit / 1000 to score_limit",
        )
        require(self.deadzone >= 0, f"deadzone={self.deadzone}: needs 0 or more")
        require(0 <= self.trim < MEDIAN, f"trim={self.trim}: needs a share from 0 up to, not including, {MEDIAN}")

    @property
    def largest_level(self) -> int:
        """Levels are 0 to this, the middle one is score 0."""
        return 2 * round(self.score_limit / self.step)


class Subbit(ScoreMethod[SubbitParameters], IncrementalMethod[SubbitParameters]):
    name = "subbit"
    title = "subbit: masks below one bit per parameter, both ways"
    paper = "ours"
    citation = "this library, docs/flagship.md"
    sends_up = "signs of the most important changes of the scores, one magnitude, entropy-coded places"
    sends_down = "scores on a grid, entropy-coded given the last broadcast"
    Parameters = SubbitParameters
    presets: ClassVar = {"default": {}, "paper": {}}

    # What goes down.

    def down_parts(self) -> tuple[Part, ...]:
        return (Part("levels", make_codec("counts"), self.size),)

    def snapshot_parts(self) -> tuple[Part, ...]:
        return self.down_parts()

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        if part.name == "changes":
            return Shared(self.size)
        largest = self.parameters.largest_level
        return Shared(self.size, limit=largest, reference=None if view is None else Counts(largest, view["levels"]))

    def first(self) -> Held:
        return {"levels": self._nearest_levels(self.start()["scores"])}

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        scores, old = np.asarray(state["scores"]), held["levels"]
        far = np.abs(scores - self.scores_of(old)) >= self.parameters.deadzone
        levels = np.where(far, self._nearest_levels(scores), old)
        return {"levels": Counts(self.parameters.largest_level, levels)}

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        return self.restore(payloads)

    def snapshot(self, held: Held) -> Payloads:
        return {"levels": Counts(self.parameters.largest_level, held["levels"])}

    def restore(self, payloads: Payloads) -> Held:
        return {"levels": payloads["levels"].values}

    def open(self, payloads: Payloads, round_number: int) -> Levels:
        levels: Levels = payloads["levels"]
        return levels

    def scores_of(self, levels: Levels) -> Vector:
        return _scores_table(self.parameters.largest_level, self.parameters.step)[levels]

    def _nearest_levels(self, scores: Any) -> Levels:
        largest = self.parameters.largest_level
        levels: Levels = np.clip(np.rint(scores / self.parameters.step) + largest // 2, 0, largest).astype(np.uint16)
        return levels

    # What goes up.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("changes", make_codec("ternary", fraction=None), self.size),)

    def train(self, view: Levels, data: Examples, turn: Turn) -> Update:
        before = torch.from_numpy(self.scores_of(view))
        after, loss = self.train_from(before, data, turn)
        change = (after - before).numpy()
        if self.parameters.residuals and "residual" in turn.memory:
            change = change + turn.memory["residual"]
        budget = self.parameters.bits_per_round
        ranked = self._most_important_first(change, before.numpy(), turn, None if budget else self._most_places())
        sent = self._within_budget(change, ranked, budget) if budget else ternary(change, ranked)
        if self.parameters.residuals:
            turn.memory["residual"] = as_float32(change - sent)
        observations = {"loss": loss, "places": float(np.count_nonzero(sent)), "moved": float(np.abs(change).mean())}
        return Update({"changes": sent}, len(data), observations)

    def _most_places(self) -> int:
        """Of an upload without a budget."""
        share: float = self.parameters.share
        return max(LEAST_PLACES, round(share * self.size))

    def _most_important_first(
        self, change: Vector, before: Vector, turn: Turn, most: int | None = None
    ) -> NDArray[np.int64]:
        """Places whose score changed, all or the `most` first; among equals the lower ones first, so that every machine
        ranks alike."""
        places = np.flatnonzero(change)
        importance = np.abs(change[places])
        if self.parameters.order == "kl":
            theta = 1 / (1 + np.exp(-before[places].astype(np.float64)))
            importance = theta * (1 - theta) * importance.astype(np.float64) ** 2
        elif self.parameters.order == "random":
            key = derive_key(self.task.seed, "random-order", turn.round_number, turn.client)
            importance = uniforms(key, 0, len(places))
        importance = importance.astype(np.float64)
        if most is not None and most < len(places):
            # Sorting all places to take a thousandth of them would be half of a turn.
            enough = importance >= np.partition(importance, -most)[-most]
            places, importance = places[enough], importance[enough]
        return places[np.argsort(-importance, kind="stable")][:most]

    def _within_budget(self, change: Vector, ranked: NDArray[np.int64], bits: int) -> Vector:
        """As many places as fit. The length of a code is no simple function of their number: bisection finds it."""
        fitting, beyond = 0, len(ranked) + 1
        while beyond - fitting > 1:
            middle = (fitting + beyond) // 2
            fits = self._upload_bits(ternary(change, ranked[:middle])) <= bits
            fitting, beyond = (middle, beyond) if fits else (fitting, middle)
        return ternary(change, ranked[:fitting])

    def _upload_bits(self, sent: Vector) -> int:
        payload: bytes = self.up_parts()[0].codec.encode(sent, Shared(self.size))
        return 8 * (HEADER_BYTES + len(payload))

    # The server half.

    def start(self) -> State:
        scores = scores_of_thresholds(self.initial_thresholds()).numpy()
        return {"scores": scores.clip(-self.parameters.score_limit, self.parameters.score_limit)}

    def farthest(self, part: Part, view: Levels) -> float:
        return self._most_gathered(self.task.rounds)

    def _most_gathered(self, turns: int) -> float:
        """A turn moves a score by no more than from one end of what is held to the other end of what is trained, and
        what was not sent waits: turns add up."""
        gathered = turns if self.parameters.residuals else 1
        return float(gathered * (self.parameters.score_limit + SCORE_LIMIT) * ROUNDING)

    def accumulator(self) -> Accumulator:
        if self.parameters.aggregator == "mean":
            return WeightedMean(self.size)
        if self.parameters.aggregator == "agreement":
            return AgreeingMean(self.size, self.parameters.trim)
        return TrimmedMean(self.size, share_dropped(self.parameters.aggregator, self.parameters.trim))

    def accumulate(
        self, accumulator: Accumulator, view: Levels, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        self._refuse_what_nobody_could_send(payloads["changes"], round_number)
        # What waited with a client may be longer than the whole range of the scores, but more would be no use. And
        # every client counts the same: so far, no farther, can a liar move a score.
        most = 2 * self.parameters.score_limit
        accumulator.add(np.clip(payloads["changes"], -most, most), 1)

    def _refuse_what_nobody_could_send(self, sent: Vector, round_number: int) -> None:
        places, budget = np.count_nonzero(sent), self.parameters.bits_per_round
        if budget is None and places > self._most_places():
            raise PayloadError(f"changes of {places} places, at most {self._most_places()} fit `share`", "value")
        if budget is not None and self._upload_bits(sent) > budget:
            raise PayloadError(f"changes of {places} places do not fit bits_per_round={budget}", "value")
        check_within(sent, self._most_gathered(round_number + 1), "an upload of changes")

    def step(self, state: State, accumulator: Accumulator, round_number: int) -> State:
        limit = self.parameters.score_limit
        scores = np.asarray(state["scores"]) + self.parameters.server_rate * accumulator.mean()
        return {"scores": as_float32(scores.clip(-limit, limit))}

    def write_network(self, state: State, network: str, key: int) -> None:
        scores = np.asarray(state["scores"], dtype=np.float64)
        self.write_thresholds(as_thresholds(FULL / (1 + np.exp(-scores))), network, key)


def ternary(change: Vector, places: NDArray[np.int64]) -> Vector:
    """The signs of the change at these places, all with the mean of their magnitudes; zero elsewhere."""
    vector = np.zeros_like(change)
    if places.size:
        vector[places] = np.sign(change[places]) * np.float32(np.abs(change[places].astype(np.float64)).mean())
    return vector


@lru_cache(maxsize=4)
def _scores_table(largest_level: int, step: float) -> Vector:
    return as_float32((np.arange(largest_level + 1) - largest_level // 2) * step)

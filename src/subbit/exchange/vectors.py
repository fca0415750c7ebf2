"""Broadcasts a vector, clients upload changes of it, the server adds their mean. Works with every map and vector codec.

    down   v, whole in float32; or, through another codec, its change since the last broadcast
    up     v_k - v, through any vector codec
    server v <- v + mean of the changes

A biased codec (top-k, ternary) drops the same places again and again unless the client adds what was dropped to its
next change (`error_feedback`; Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018). The downlink needs
no residual: the server knows what receivers hold, and the next change is the difference to it, so a loss is part of the
next broadcast (Tang, Yu, Lian, Zhang, Liu, "DoubleSqueeze", ICML 2019). This needs a codec that reduces the error in
every round (`Codec.contractive`), which an unbiased codec of few bits does not. Clients train from what they hold, and
their changes are relative to it.

A malicious client can move a mean arbitrarily far. `aggregator` and `clip_norm` bound its influence; clients then have
equal weights, since the number of examples is self-reported too.

With averaged batch normalisation, running statistics are sent in addition, uncompressed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import clip_to_norm
from subbit.aggregate.aggregators import Accumulator, Aggregator, Mean, averages_vectors
from subbit.codecs import Codec, Kind, Shared, Vector, make_codec
from subbit.codecs.dense import Dense
from subbit.codecs.qsgd import Qsgd
from subbit.codecs.ternary import Ternary
from subbit.codecs.topk import with_error_feedback
from subbit.core.devices import host
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.exchange.exchange import Exchange, Held, Part, Payloads, State, as_float32
from subbit.exchange.honest import FAR, KeptLargest, check_variances
from subbit.maps.bound import BoundMap
from subbit.models.task import Task, Turn

BIASED = ("topk", "ternary")
VELOCITY = "velocity"
"""Entry of the state: the last step of a server with momentum. It is not sent."""
HERE = (Qsgd(levels=2), Ternary(fraction=0.1))
"""Options that differ from the codecs' defaults."""


def is_vector_codec(codec: Any) -> bool:
    return bool(codec.kind is Kind.VECTOR)


@dataclass(frozen=True)
class VectorUp:
    """How a change is uploaded."""

    codec: Codec[Vector] = choice("codec", Dense(), accepts=is_vector_codec, others=HERE)
    error_feedback: bool | Literal["auto"] = "auto"
    """Error feedback: the client adds what a lossy codec lost to its next change. `auto`: for biased codecs."""
    whole: bool = False
    """Upload the vector itself, and replace the server's by the mean; otherwise upload its change."""

    def __post_init__(self) -> None:
        require(not (self.whole and self.feeds_back), "whole=true: error_feedback is for changes")

    @property
    def feeds_back(self) -> bool:
        return self.codec.name in BIASED if self.error_feedback == "auto" else self.error_feedback


@dataclass(frozen=True)
class VectorDown:
    """How the vector is broadcast: whole, in float32; or, with another codec, as its change since the last broadcast.

    Clients that missed broadcasts are sent the missed ones or a snapshot.
    """

    codec: Codec[Vector] = choice("codec", Dense(), accepts=is_vector_codec, others=HERE)


@dataclass(frozen=True)
class VectorAggregate:
    """How changes are aggregated."""

    aggregator: Aggregator = choice("aggregator", Mean(), accepts=averages_vectors)
    clip_norm: float | None = None
    """Larger changes are scaled down to this norm, and all clients have equal weights; none: no bound."""
    weighting: Literal["examples", "clients"] = "examples"
    """Weight of a client in the mean: its number of examples, or equal for all."""

    server_momentum: float = 0.0
    """The server keeps moving in the direction of earlier steps, by this share of them (FedAvgM; Hsu, Qi, Brown, 2019).
    Costs no byte."""
    server_rate: float = 1.0
    """Step size of the server along the mean change."""

    def __post_init__(self) -> None:
        require(self.clip_norm is None or self.clip_norm > 0, f"clip_norm={self.clip_norm}: needs a number above 0")
        momentum, rate = self.server_momentum, self.server_rate
        require(0 <= momentum < 1, f"server_momentum={momentum}: needs 0 up to, not including, 1")
        require(0 < rate < math.inf, f"server_rate={rate}: needs a number above 0")

    @property
    def plain_step(self) -> bool:
        """Whether the server moves by exactly the mean."""
        return self.server_momentum == 0 and self.server_rate == 1


class VectorPieces(Protocol):
    @property
    def up(self) -> VectorUp: ...

    @property
    def down(self) -> VectorDown: ...

    @property
    def aggregate(self) -> VectorAggregate: ...


class VectorExchange(Exchange):
    also_down: tuple[Part, ...] = ()
    """Further parts of the state that are broadcast unchanged."""
    also_up: tuple[Part, ...] = ()
    """Further vectors of the state to which the mean of the uploads is added."""

    def __init__(self, task: Task, pieces: VectorPieces, bound: BoundMap, up_name: str | None = None) -> None:
        self.task, self.map = task, bound
        self._largest = KeptLargest()
        self.name, self.up_name = bound.vector, up_name or bound.vector
        self.up, self.aggregate = pieces.up, pieces.aggregate
        self.down_codec = pieces.down.codec.contractive()
        require(not (self.up.whole and self.aggregate.clip_norm), "whole=true: clip_norm is for changes")
        plain = self.aggregate.plain_step
        require(plain or not self.up.whole, "whole=true: server_momentum and server_rate are for changes")
        if bound.moves < bound.size:
            require(not self.up.whole, "rotate=true: whole=true sends all values")
            require(not self.up.feeds_back, "rotate=true: what is lost cannot be sent later; use error_feedback=false")
        if pieces.down.codec != Dense():
            self.changes = VectorChanges(self)

    # Payloads.

    def known_parts(self) -> tuple[Part, ...]:
        """What receivers know after a broadcast, the vector first; all of it is in the state."""
        return (Part(self.name, make_codec("dense"), self.map.size), *self.statistics_part(), *self.also_down)

    def statistics_part(self) -> tuple[Part, ...]:
        statistics = self.task.flat.statistics if self.map.statistics else None
        return () if statistics is None else (Part("statistics", make_codec("dense"), statistics.numel()),)

    def down_parts(self) -> tuple[Part, ...]:
        vector, *others = self.known_parts()
        if self.changes is not None:
            vector = Part("change", self.down_codec, self.map.moves)
        return (vector, *others)

    def up_parts(self) -> tuple[Part, ...]:
        return (Part(self.up_name, self.up.codec, self.map.moves), *self.statistics_part(), *self.also_up)

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        # A separate rotation or rounding for every client and round, so that errors average out.
        return Shared(part.size, key=derive_key(self.task.seed, f"codec-{part.name}", round_number, client))

    def start(self) -> State:
        state: State = {self.name: self.map.start()}
        if self.map.statistics and self.task.flat.statistics is not None:
            state["statistics"] = host(self.task.flat.statistics).copy()
        if self.aggregate.server_momentum:
            state[VELOCITY] = np.zeros(self.map.size, dtype=np.float32)
        return state

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {part.name: state[part.name] for part in self.known_parts()}

    def after_broadcast(self, state: State, held: Held) -> State:
        """What a broadcast loses is part of the next one, unless other values move by then. Those stay where receivers
        hold them: the clients will train on top of that.
        """
        return state if self.map.moves == self.map.size else {**state, self.name: held[self.name]}

    def open(self, payloads: Payloads, round_number: int) -> Payloads:
        return payloads

    # Client side.

    def trained(self, view: dict[str, NDArray[np.float32]]) -> Tensor:
        self.write_statistics(view)
        return self.map.received(view[self.name])

    def write_statistics(self, vectors: dict[str, Any]) -> None:
        """Write running statistics, if they are sent, into the module."""
        if self.map.statistics and self.task.flat.statistics is not None:
            with torch.no_grad():
                self.task.flat.statistics.copy_(torch.from_numpy(vectors["statistics"]))

    def say(self, view: dict[str, NDArray[Any]], trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        after = self.map.finished(trained).numpy()
        said = after if self.up.whole else as_float32(after - view[self.name])
        where = self.map.moving(turn.round_number)
        said = said if where is None else said[where]
        payloads: Payloads = {self.up_name: self.with_feedback(said, view, turn)}
        if self.map.statistics and self.task.flat.statistics is not None:
            payloads["statistics"] = as_float32(host(self.task.flat.statistics) - view["statistics"])
        return payloads, self.map.observed(view[self.name])

    def with_feedback(self, change: Vector, view: Any, turn: Turn) -> Vector:
        """The change plus the client's residual from earlier ones, with error feedback."""
        if not self.up.feeds_back:
            return change
        part = replace(self.up_parts()[0], codec=self.up.codec)
        residual = turn.memory.get("residual", np.zeros_like(change))
        known = self.shared(part, view, turn.round_number, turn.client)
        _, turn.memory["residual"] = with_error_feedback(part.codec, change, residual, known)
        return as_float32(change + residual)

    # Server side.

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        if self.up.whole:
            self.map.refuse(payloads[self.up_name])
        if "statistics" in payloads:
            check_variances(self.task.flat, view["statistics"], payloads["statistics"])

    def farthest(self, part: Part, view: Any) -> float:
        if part.name == "statistics":
            return FAR * super().farthest(part, view)  # Variances are squares, so the bound is squared too.
        # A lossy codec may decode a change to something larger than any change.
        bound = self.map.farthest() if self.up.whole else None
        return bound or FAR * max(1.0, self._largest(view[self.name]))

    def accumulator(self) -> Accumulator:
        return self.aggregate.aggregator.accumulator(sum(part.size for part in self.up_parts()))

    def accumulate(
        self,
        accumulator: Accumulator,
        view: Any,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        changes, bound = [payloads[part.name] for part in self.up_parts()], self.aggregate.clip_norm
        if bound is not None:
            # Clip each part separately: running statistics move further than weights and would use up a common bound.
            changes = [clip_to_norm(change, bound) for change in changes]
        if bound is not None or self.aggregate.weighting == "clients":
            examples = min(examples, 1)
        accumulator.add(np.concatenate(changes) if len(changes) > 1 else changes[0], examples)

    def step(self, state: State, accumulator: Accumulator, round_number: int) -> State:
        mean = accumulator.mean()
        if self.up.whole and not mean.any():
            return state  # No participant has examples: there is no mean.
        return self.moved(state, mean, round_number)

    def moved(self, state: State, mean: NDArray[np.float64], round_number: int) -> State:
        """The state after a mean change of all parts."""
        ends = np.cumsum([part.size for part in self.up_parts()])[:-1]
        after: State = {}
        for part, change in zip(self.up_parts(), np.split(mean, ends), strict=True):
            name = self.name if part.name == self.up_name else part.name
            if name == self.name:
                change = scattered(change, self.map.moving(round_number), self.map.size)
            if name == self.name and not self.aggregate.plain_step:
                change = self.aggregate.server_rate * change
                if self.aggregate.server_momentum:
                    change = self.aggregate.server_momentum * np.asarray(state[VELOCITY], dtype=np.float64) + change
                    after[VELOCITY] = as_float32(change)
            whole = self.up.whole and name == self.name
            before = 0.0 if whole else np.asarray(state[name], dtype=np.float64)
            after[name] = as_float32(before + change)
        after[self.name] = self.map.settled(np.asarray(after[self.name]))
        return after

    def write(self, state: State, network: str, key: int) -> None:
        self.write_statistics(state)
        self.map.write(np.asarray(state[self.name]), network, key)


def scattered(values: NDArray[Any], where: NDArray[np.int64] | None, size: int) -> NDArray[Any]:
    """A vector with these values at these places, and zeros elsewhere."""
    if where is None:
        return values
    whole = np.zeros(size, dtype=values.dtype)
    whole[where] = values
    return whole


class VectorChanges:
    """Receivers hold the known parts: the vector as last broadcast, the others unchanged."""

    def __init__(self, exchange: VectorExchange) -> None:
        self.exchange = exchange
        self.name = exchange.name

    def first(self) -> Held:
        others = {part.name: np.zeros(part.size, dtype=np.float32) for part in self.exchange.statistics_part()}
        return {self.name: self.exchange.map.known(), **others}

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        others = {part.name: state[part.name] for part in self.exchange.known_parts()[1:]}
        change, where = as_float32(np.asarray(state[self.name]) - held[self.name]), self._moved(round_number)
        return {"change": change if where is None else change[where], **others}

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        others = {part.name: payloads[part.name] for part in self.exchange.known_parts()[1:]}
        change = scattered(payloads["change"], self._moved(round_number), self.exchange.map.size)
        return {self.name: as_float32(held[self.name] + change), **others}

    def _moved(self, round_number: int) -> NDArray[np.int64] | None:
        """What a broadcast can say moved in the round before. Before the first one nothing has."""
        return self.exchange.map.moving(max(round_number - 1, 0))

    def snapshot_parts(self) -> tuple[Part, ...]:
        return self.exchange.known_parts()

    def snapshot(self, held: Held) -> Payloads:
        return dict(held)

    def restore(self, payloads: Payloads) -> Held:
        return dict(payloads)

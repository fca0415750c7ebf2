"""Chooses the exchange of a probabilistic map: with a bit codec clients send bits, which are counted; with a vector
codec they send the change of the trained vector, which is averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from subbit.aggregate.aggregators import Mean
from subbit.codecs import Kind
from subbit.codecs.counted import CountsCodec
from subbit.codecs.dense import Dense
from subbit.core.errors import ConfigError
from subbit.core.pieces import Place
from subbit.exchange.exchange import Exchange
from subbit.exchange.posterior import Beta, BitsAggregate, BitsDown, BitsExchange, BitsUp
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.maps.bound import BoundMap
from subbit.models.task import Task


class BitsPieces(Protocol):
    @property
    def up(self) -> BitsUp: ...

    @property
    def down(self) -> BitsDown: ...

    @property
    def aggregate(self) -> BitsAggregate: ...


@dataclass(frozen=True)
class _Vectors:
    up: VectorUp
    down: VectorDown
    aggregate: VectorAggregate


def carries_bits(codec: Any) -> bool:
    return bool(codec.kind is Kind.BITS)


def loses_changes(codec: Any) -> bool:
    """Whether it sends changes of a vector, and not all of them."""
    return codec.kind is Kind.VECTOR and not codec.exact


def follows_from_codec(chosen: Mapping[Place, Any]) -> dict[Place, str]:
    """With a vector codec on the uplink there is nothing to count: the `implied` choices of methods that use both."""
    if carries_bits(chosen["up", "codec"]):
        return {}
    counting = {("down", "codec"): (CountsCodec, "dense"), ("aggregate", "aggregator"): (Beta, "mean")}
    return {place: name for place, (counts, name) in counting.items() if isinstance(chosen[place], counts)}


def bits_or_vectors(task: Task, pieces: BitsPieces, bound: BoundMap) -> Exchange:
    if pieces.up.codec.kind is Kind.BITS:
        if not hasattr(bound, "initial_thresholds"):
            raise ConfigError(f"codec={pieces.up.codec.name} carries bits, which this map has none of: use map=mask")
        return BitsExchange(task, bound, pieces.up, pieces.down, pieces.aggregate)
    down, aggregator = pieces.down.codec, pieces.aggregate.aggregator
    vectors = _Vectors(
        # With an exact codec the vector itself is sent instead of its change, so nothing has to be summed.
        VectorUp(pieces.up.codec, getattr(pieces.up, "error_feedback", "auto"), whole=pieces.up.codec.exact),
        VectorDown(Dense() if isinstance(down, CountsCodec) else down),
        VectorAggregate(Mean() if isinstance(aggregator, Beta) else aggregator, weighting="clients"),
    )
    return VectorExchange(task, vectors, bound, up_name=pieces.up.part)

"""Exchange of the centralised reference methods: scores on frozen weights, uncompressed in float32 both ways.

    down   s
    client continues training s from its last turn (`subbit.local.kept_moments`)
    up     s after training
    server s <- mean of the clients' scores, weighted by examples

With one client this is the centralised algorithm itself, since the mean of one vector is that vector. With several it
is FedAvg on scores, at 32 bits per parameter each way.
"""

from __future__ import annotations

from dataclasses import dataclass

from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.maps.bound import BoundMap
from subbit.models.task import Task


@dataclass(frozen=True)
class _Whole:
    up: VectorUp = VectorUp(whole=True)
    down: VectorDown = VectorDown()
    aggregate: VectorAggregate = VectorAggregate()


def central_exchange(task: Task, bound: BoundMap) -> VectorExchange:
    return VectorExchange(task, _Whole(), bound)

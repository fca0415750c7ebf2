"""Engines deliver orders to clients. They differ only in this; bytes and results are the same.

`InProcess` runs turns in this process, `Workers` in several. Workers are not forked from this process, in which torch
may have started threads, but from one that computes nothing (`subbit.runtime.nursery`). They receive the problem once,
through shared memory; broadcasts, states and large replies too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.multiprocessing  # Tensors go to a process through shared memory once this is imported.
from numpy.typing import NDArray

from subbit.config.resolve import Settings
from subbit.core.devices import find_device
from subbit.core.errors import WorkerError
from subbit.core.plugins import Plugins, loaded_plugins
from subbit.models.cache_store import CacheStore
from subbit.runtime.client import EvaluationOrder, client_turn, evaluation_turn
from subbit.runtime.client_memory import Memories
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.parcel import Packer, unpack
from subbit.runtime.pool import Died, Pool
from subbit.runtime.problem import Problem
from subbit.runtime.workplace import Workplace

TRAINING_TRIES = 2
EVALUATION_TRIES = 3


Message = TypeVar("Message", Order, EvaluationOrder, Reply)


class Engine(Protocol):
    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Replies as they arrive, in any order, one per order."""

    def candidates(self, clients: list[int]) -> list[int]:
        """Those of these clients that can be asked now."""

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        """How the network does on the examples of each order."""

    def close(self) -> None: ...


class InProcess:
    def __init__(self, workplace: Workplace, threads: int) -> None:
        self._workplace = workplace
        keep_freed_memory()
        workplace.open_cache()
        self._threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        return map(partial(client_turn, self._workplace), orders)

    def candidates(self, clients: list[int]) -> list[int]:
        return clients

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        return [evaluation_turn(self._workplace, order) for order in orders]

    def close(self) -> None:
        torch.set_num_threads(self._threads_before)


class Workers:
    """Several processes. A process that dies is replaced and its order sent again. If a client's training kills the
    second one too, that client alone fails the round."""

    def __init__(self, workplace: Workplace) -> None:
        # Plugins first: a worker must load them before it unpickles objects of their classes.
        given = (
            loaded_plugins(),
            workplace.problem,
            workplace.settings,
            workplace.job,
            workplace.memories,
            workplace.open_cache(),
        )
        self._pool = Pool(workplace.settings.run.workers, _start_worker, given)

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for position, reply in self._pool.answers(_worker_turn, _packed(orders), TRAINING_TRIES):
            if isinstance(reply, Died):
                died = Failure("died", "the process that trained this client died")
                yield Reply(orders[position].client, failure=died)
            else:
                yield _opened(reply)

    def candidates(self, clients: list[int]) -> list[int]:
        return clients

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        found = {}
        for position, correct in self._pool.answers(_worker_evaluation, _packed(orders), EVALUATION_TRIES):
            if isinstance(correct, Died):
                raise WorkerError(
                    f"the worker process died {EVALUATION_TRIES} times at the same evaluation, perhaps for want of "
                    "memory: use fewer workers; workers=1 evaluates in the process itself and shows why"
                )
            found[position] = correct
        return [found[position] for position in range(len(orders))]

    def close(self) -> None:
        self._pool.close()


_workplace: Workplace | None = None
LARGE_BLOCK = 31 << 20
"""Bytes; just below the largest block of which glibc takes notice."""


def keep_freed_memory() -> None:
    """Let the process keep what it frees, instead of having every large tensor's pages made anew by the system.

    glibc gives blocks above a threshold back to the system, and raises the threshold to the largest that was freed so
    far. A process that has read data has freed a large one; a worker, which shares them, has not, and took a seventh
    longer for a turn. Elsewhere this does nothing.
    """
    torch.empty(LARGE_BLOCK, dtype=torch.uint8)


def _start_worker(
    plugins: Plugins,
    problem: Problem,
    settings: Settings,
    job: str,
    memories: Memories,
    store: CacheStore | None,
    number: int,
) -> None:
    global _workplace
    keep_freed_memory()
    torch.set_num_threads(settings.run.threads)
    where = find_device(settings.run.device, number)
    _workplace = Workplace(problem, settings, job, memories, where, share=True)
    if store is not None:
        _workplace.open_cache(store)


def _here() -> Workplace:
    if _workplace is None:
        raise RuntimeError("this process was not started as a worker")
    return _workplace


def _worker_turn(order: Order) -> Reply:
    return _packed([client_turn(_here(), _opened(order))])[0]


def _worker_evaluation(order: EvaluationOrder) -> NDArray[np.float64]:
    return evaluation_turn(_here(), _opened(order))


def _packed(messages: Sequence[Message]) -> list[Message]:
    """The messages with their large contents in shared memory. What several messages hold is there once."""
    packer = Packer()
    return [_with_fields(message, packer.pack) for message in messages]


def _opened(message: Message) -> Message:
    return _with_fields(message, unpack)


def _with_fields(message: Message, change: Callable[[Any], Any]) -> Message:
    changed: Any = replace(message, **{field.name: change(getattr(message, field.name)) for field in fields(message)})
    found: Message = changed
    return found

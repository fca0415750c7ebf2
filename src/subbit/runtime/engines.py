"""How an order reaches a client. Engines differ in this and in nothing else: the bytes and the results are the same.

`InProcess` takes turns in this process, `Workers` in several. Workers are spawned, not forked (forking a process in
which torch has started threads can hang), and get the problem once, through shared memory.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

import numpy as np
import torch
import torch.multiprocessing
from numpy.typing import NDArray

from subbit.config.load import Settings
from subbit.runtime.client import EvaluationOrder, client_turn, evaluation_turn
from subbit.runtime.memory import Memories
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.problem import Problem
from subbit.runtime.workplace import Workplace


class Engine(Protocol):
    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Replies as they arrive, in any order, one for every order."""

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.bool_]]:
        """Which of the examples of each order the network gets right."""

    def close(self) -> None: ...


class InProcess:
    def __init__(self, workplace: Workplace, threads: int) -> None:
        self._workplace = workplace
        self._threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        return (client_turn(self._workplace, order) for order in orders)

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.bool_]]:
        return [evaluation_turn(self._workplace, order) for order in orders]

    def close(self) -> None:
        torch.set_num_threads(self._threads_before)


class Workers:
    """A pool of processes. A process that dies costs its client the round, not the run."""

    def __init__(self, workplace: Workplace) -> None:
        self._settings = workplace.settings
        self._start = (workplace.problem, workplace.settings, workplace.job, workplace.memories)
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._settings.run.workers,
            mp_context=torch.multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=self._start,
        )

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        running: dict[Future[Reply], Order] = {self._pool.submit(_worker_turn, order): order for order in orders}
        lost = []
        for future in as_completed(running):
            try:
                yield future.result()
            except BrokenProcessPool:
                lost.append(running[future])
        # One dead process takes the whole pool with it. Ask again one by one, so that only the one that dies again
        # is lost.
        for order in sorted(lost, key=lambda lost_order: lost_order.client):
            self._restart()
            try:
                yield self._pool.submit(_worker_turn, order).result()
            except BrokenProcessPool:
                yield Reply(order.client, failure=Failure("died", "the process that trained this client died"))
                self._restart()

    def _restart(self) -> None:
        if self._pool._broken:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._new_pool()

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.bool_]]:
        return list(self._pool.map(_worker_evaluation, orders))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


_workplace: Workplace | None = None


def _start_worker(problem: Problem, settings: Settings, job: str, memories: Memories) -> None:
    global _workplace
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(settings.run.threads)
    _workplace = Workplace(problem, settings, job, memories)


def _end_with_parent() -> None:
    """A parent that is killed cannot say goodbye; a pool's processes would wait for its next order for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _here() -> Workplace:
    if _workplace is None:
        raise RuntimeError("this process was not started as a worker")
    return _workplace


def _worker_turn(order: Order) -> Reply:
    return client_turn(_here(), order)


def _worker_evaluation(order: EvaluationOrder) -> NDArray[np.bool_]:
    return evaluation_turn(_here(), order)

"""Worker processes that execute orders. A process that dies is replaced, and its order is sent again.

Each process has its own pipe, so a crash affects only its own order. It is detected as the end of the pipe: when the
next order is sent, if the process was idle, or instead of an answer.
"""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from subbit.runtime.nursery import Nursery, NurseryGone, find_nursery
from subbit.runtime.watch import WatchedProcess

Answer = TypeVar("Answer")
GONE = (EOFError, OSError)
"""Raised by a pipe whose other end is closed."""


class Died:
    """Returned instead of an answer: the order used up its tries, and its process died every time."""


class Pool:
    """`start` is called once in every new process, with these arguments and the number of the worker; it may set up
    globals for the orders."""

    def __init__(self, size: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._start, self._arguments = start, arguments
        self._nursery = find_nursery()
        self._workers: list[_Worker] = []
        try:
            for number in range(size):
                self._workers.append(self._new_worker(number))
        except BaseException:
            self.close()
            raise

    def _new_worker(self, number: int) -> _Worker:
        return _Worker(self._nursery, self._start, (*self._arguments, number))

    def answers(
        self, function: Callable[[Any], Answer], orders: Sequence[Any], tries: int
    ) -> Iterator[tuple[int, Answer | Died]]:
        """Positions of orders and their answers, as they arrive. Exceptions of `function` are raised here."""
        waiting = deque((position, 1) for position in range(len(orders)))
        busy: dict[int, tuple[int, int]] = {}
        """By worker: the order it is working on, and the number of the try."""

        def give(number: int) -> None:
            if waiting:
                busy[number] = waiting.popleft()
                self._send(number, (function, orders[busy[number][0]]))

        try:
            for number in range(len(self._workers)):
                give(number)
            while busy:
                connections = {self._workers[number].connection: number for number in busy}
                for connection in cast("list[Connection]", wait(list(connections))):
                    number = connections[connection]
                    position, tried = busy.pop(number)
                    answer: Any
                    try:
                        answer = connection.recv()
                    except GONE:
                        self._workers[number].end()
                        if tried < tries:
                            waiting.append((position, tried + 1))
                            give(number)
                            continue
                        answer = Died()
                    give(number)
                    if isinstance(answer, _Raised):
                        raise answer.error
                    yield position, answer
        finally:
            # If the caller stopped early, these answers must not be taken for those of later orders.
            for number in busy:
                self._workers[number].end()

    def _send(self, number: int, message: Any) -> None:
        """Replaces a dead process. If the new one dies too, this is detected when its answer is read."""
        try:
            self._workers[number].connection.send(message)
        except GONE:
            self._workers[number].end()
            self._workers[number] = self._new_worker(number)
            with suppress(*GONE):
                self._workers[number].connection.send(message)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._nursery.close()


class _Worker:
    def __init__(self, nursery: Nursery, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.connection, theirs = Pipe()
        self._process = _start_process(nursery, (theirs, start, arguments))
        theirs.close()  # So that our end of the pipe closes when the process ends.

    def end(self) -> None:
        """Kill the process immediately. May be called more than once."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _start_process(nursery: Nursery, arguments: tuple[Any, ...]) -> BaseProcess:
    process: BaseProcess
    if not nursery.gone:
        from subbit.runtime.forked import ForkedProcess  # Not on every system.

        process = ForkedProcess(nursery, target=_serve, args=arguments, daemon=True)
        with suppress(NurseryGone):
            process.start()
            return process
    process = WatchedProcess(target=_serve, args=arguments, daemon=True)
    process.start()
    return process


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _serve(connection: Connection, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    start(*arguments)
    while True:
        try:
            function, order = connection.recv()
        except GONE:
            return
        try:
            answer = function(order)
        except Exception as error:
            answer = _Raised(_portable(error))
        connection.send(answer)


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note, or only the traceback if the error cannot be pickled."""
    text = "in a worker process:\n" + "".join(traceback.format_exception(error))
    error.add_note(text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error

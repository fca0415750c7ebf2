"""Processes that answer orders. One that dies is replaced, and the order it was working on is sent again.

Each process has a pipe of its own, so a death costs the order of that process and no other. It shows as the end of the
pipe: when the next order is sent, if the process was idle, or instead of an answer.
"""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeVar, cast

from subbit.runtime.watch import WatchedProcess

Answer = TypeVar("Answer")
GONE = (EOFError, OSError)
"""What a pipe raises whose other end is closed."""


class Died:
    """Instead of an answer: the order was sent as often as allowed, and its process died every time."""


class Pool:
    """`start` is called once in every new process, with these arguments; answers may build on what it leaves there."""

    def __init__(self, size: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._start, self._arguments = start, arguments
        self._workers = [self._new_worker() for _ in range(size)]

    def _new_worker(self) -> _Worker:
        return _Worker(self._start, self._arguments)

    def answers(
        self, function: Callable[[Any], Answer], orders: Sequence[Any], tries: int
    ) -> Iterator[tuple[int, Answer | Died]]:
        """The position of an order and its answer, as they arrive. An exception of `function` is raised here."""
        waiting = deque((position, 1) for position in range(len(orders)))
        busy: dict[int, tuple[int, int]] = {}
        """Which order, and which try of it, the worker of that number is working on."""

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
            # Whoever stopped listening must not get these answers in the place of others.
            for number in busy:
                self._workers[number].end()

    def _send(self, number: int, message: Any) -> None:
        """A process that is gone is replaced. Should its successor die too, that shows when its answer is read."""
        try:
            self._workers[number].connection.send(message)
        except GONE:
            self._workers[number].end()
            self._workers[number] = self._new_worker()
            with suppress(*GONE):
                self._workers[number].connection.send(message)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()


class _Worker:
    def __init__(self, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.connection, theirs = Pipe()
        self._process = WatchedProcess(target=_serve, args=(theirs, start, arguments), daemon=True)
        self._process.start()
        theirs.close()  # So that this end of the pipe ends with the process.

    def end(self) -> None:
        """At once: nobody waits for what it is doing. May be called again."""
        self._process.kill()
        self._process.join()
        self.connection.close()


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
    """The error with its traceback as a note, or the traceback alone where the error itself cannot travel."""
    text = "in a worker process:\n" + "".join(traceback.format_exception(error))
    error.add_note(text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error

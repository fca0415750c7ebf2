"""The server's side of a nursery, the process from which workers are forked (`subbit.runtime.nursery_process`).

Importing torch takes longer than all else in the start of a worker, and a server with its workers would do it once
each. A nursery does it once for all workers of a pool, also for those that replace dead ones. Forked from a command
that has imported torch and has not used it yet, it need not import anything. A process of somebody else's is not
forked: what it has changed, and the memory that it holds, would be the workers' too.

A nursery needs Linux. Where there is none, or it is killed, workers are spawned (`subbit.runtime.watch`).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker, spawn, util
from typing import Any

from subbit.runtime.nursery_process import MOST_DESCRIPTORS, NUMBER, PACKET, alone, load_kernels, serve
from subbit.runtime.watch import interrupts_blocked

POSSIBLE = sys.platform == "linux" and not getattr(sys, "frozen", False)
IMPORTED = "subbit.runtime.engines"
PROGRAM = "import sys; sys.path[:] = {path}; from subbit.runtime.nursery_process import main; main({arguments})"
PATIENCE = 10.0
"""Seconds after which a nursery that should end is killed."""


class NurseryGone(OSError):
    """It ended or may not fork: another way is needed to start a worker."""


class Nursery:
    """A new process, started when its first worker is asked for; or `taken`, one that is there already."""

    def __init__(self, taken: tuple[int, socket.socket] | None = None) -> None:
        self.pid = 0 if taken is None else taken[0]
        self._requests = None if taken is None else taken[1]
        self._serves = taken is not None
        self.gone = not POSSIBLE
        """Forks no more. The workers that it has may live."""

    def fork(self, descriptors: Sequence[int]) -> tuple[int, int, int]:
        """A new worker with these descriptors: its process, where its end can be read, and where it reads what it is
        for. Raises `NurseryGone`."""
        if self.gone:
            raise NurseryGone
        if self._requests is None:
            self._start()
        (ended, status), (data, sending) = os.pipe(), os.pipe()
        try:
            try:
                self._ask((data, status, _tracker(), *descriptors))
            finally:
                os.close(data)
                os.close(status)
            worker = read_number(ended)
        except BaseException as error:
            os.close(ended)
            os.close(sending)
            if isinstance(error, EOFError | OSError):
                self.gone = True
                raise NurseryGone from error
            raise
        self._serves = True
        return worker, ended, sending

    def _ask(self, descriptors: Sequence[int]) -> None:
        if self._requests is None:
            raise NurseryGone
        left = len(descriptors)
        while left:
            some = descriptors[-left:][:MOST_DESCRIPTORS]
            left -= len(some)
            socket.send_fds(self._requests, [PACKET.pack(len(some), left)], list(some))

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Where the server has called a kernel, workers will.
        arguments = f"{theirs.fileno()}, {os.getpid()}, {IMPORTED!r}, {'numba' in sys.modules}"
        path = spawn.get_preparation_data("nursery")["sys_path"]
        command: Any = spawn.get_command_line()
        command[command.index("-c") + 1] = PROGRAM.format(path=path, arguments=arguments)
        with theirs, interrupts_blocked():
            self.pid = util.spawnv_passfds(os.fsencode(command[0]), command, [theirs.fileno()])
        self._requests = ours

    def close(self) -> None:
        """End it and its workers. May be called more than once."""
        self.gone = True
        if self._requests is None:
            return
        self._requests.close()
        self._requests = None
        # One that still imports would notice only afterwards.
        end = time.monotonic() + (PATIENCE if self._serves else 0)
        with suppress(ChildProcessError):  # Somebody else waited for it.
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > end:
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.001)


def read_number(descriptor: int) -> int:
    """What a nursery wrote: the number of a process, or how it ended."""
    found = os.read(descriptor, NUMBER.size)
    if len(found) < NUMBER.size:
        raise EOFError
    return int(NUMBER.unpack(found)[0])


def _tracker() -> int:
    found: Any = resource_tracker.getfd()  # It is running from here on.
    return int(found)


_offered: Nursery | None = None


@contextmanager
def forked_nursery(*, kernels: bool = False) -> Iterator[None]:
    """Fork this process: the workers of the first pool that is made inside come from there. With `kernels`, which
    workers will call, numba is loaded first, once for all processes.

    Call it in a process of our own, after everything is imported and before anything is computed, when no other thread
    of Python runs. Does nothing where that would not be safe.
    """
    global _offered
    if kernels and POSSIBLE:
        load_kernels()
    made = _offered = _fork_this_process() if POSSIBLE else None
    try:
        yield
    finally:
        _offered = None
        if made is not None:
            made.close()


def find_nursery() -> Nursery:
    """For one pool, which closes it."""
    global _offered
    found, _offered = _offered, None
    return found or Nursery()


def _fork_this_process() -> Nursery | None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with interrupts_blocked():
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                _forget_signals()
                serve(theirs, server)
            finally:
                os._exit(1)
    theirs.close()
    made = Nursery((pid, ours))
    if alone():
        return made
    os.kill(pid, signal.SIGKILL)  # It may be stuck: a thread that is not there may hold a lock.
    made.close()
    return None


def _forget_signals() -> None:
    """As in a new program: what was handled is no longer, what was ignored still is."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

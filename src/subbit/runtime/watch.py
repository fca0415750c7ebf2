"""Spawned worker processes that end with the process that started them, even during start-up.

A parent that is killed cannot stop its workers: they would finish starting (seconds, if they import torch) and then
wait forever. The first thing that a spawned process reads is its name, before it imports the main module and long
before it reads its arguments, so unpickling the name starts the watch. This file imports only the standard library and
is run by its path, because the new process does not have its parent's `sys.path` yet. From then on nothing is collected
until the process runs: all that it makes while it imports modules stays (`subbit.core.garbage`).
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from typing import Any

THREAD = "end-with-parent"
POLL_SECONDS = 0.5
PR_SET_PDEATHSIG = 1  # From linux/prctl.h.


class WatchedProcess(SpawnProcess):
    """A spawned process that ends when its parent does, and leaves Ctrl-C to its parent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.name = _Name(self.name)

    def run(self) -> None:
        """In the new process, with all modules imported."""
        collect_from_now_on()
        super().run()

    def start(self) -> None:
        with interrupts_blocked():
            super().start()


def collect_from_now_on() -> None:
    gc.freeze()
    gc.enable()


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """For the start of a process: a blocked signal stays blocked in it, so Ctrl-C never reaches it, not even while
    Python starts."""
    multiprocessing.resource_tracker.ensure_running()  # Starting the tracker inside would unblock the signal.
    with _interrupts_later():
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C: during a start it would leave a process with incomplete arguments and an error message."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread is interrupted.
        return
    came = []
    usual = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if came:
            signal.raise_signal(signal.SIGINT)


class _Name(str):
    """A name that, when unpickled, starts watching the process that pickled it."""

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"__import__('runpy').run_path({__file__!r})['watched']({str(self)!r}, {os.getpid()})"
        return eval, (code,)


def watched(name: str, parent: int) -> str:
    """Start watching the parent, once; returns the name."""
    if all(thread.name != THREAD for thread in threading.enumerate()):
        if sys.platform == "linux":
            # The kernel ends this process even while one long call, such as loading a library, blocks all threads.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        threading.Thread(target=_end_with, args=(parent,), name=THREAD, daemon=True).start()
        gc.disable()
    return name


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)

"""What a worker does between its nursery's fork and its first order, to begin as a new process would.

This file imports only the standard library, because nurseries run it before the rest is imported.
"""

from __future__ import annotations

import ctypes
import multiprocessing.resource_tracker
import os
import select
import signal
import sys
from multiprocessing import spawn
from typing import Any

PR_SET_PDEATHSIG = 1  # From linux/prctl.h.
_inherited: list[int] = []


class InheritedDescriptor:
    """Pickled in the place of a descriptor, by its position among those that the server sent: here they have other
    numbers."""

    def __init__(self, position: int) -> None:
        self._position = position

    def detach(self) -> int:
        return _inherited[self._position]


def become_worker(nursery: int, data: int, tracker: int, others: list[int]) -> int:
    """In a process that was just forked: read from `data` what it is for, and do it. Returns the exit status."""
    end_with(nursery)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _draw_otherwise()
    known: Any = multiprocessing.resource_tracker._resource_tracker
    known._fd = tracker
    _inherited[:] = others
    sentinel = os.dup(data)
    try:
        return spawn._main(data, sentinel)
    except Exception:
        if _has_ended(sentinel):
            return 1  # The server was killed while it sent what this worker is for.
        raise


def _draw_otherwise() -> None:
    """As a new process does, for whoever draws without a key. Python's own generator begins anew by itself."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def _has_ended(sentinel: int) -> bool:
    """Whether nobody can write to this pipe any more."""
    poll = select.poll()
    poll.register(sentinel, 0)
    return bool(poll.poll(0))


def end_with(parent: int) -> None:
    """Let the kernel end this process with the thread that started it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)

"""Worker processes that a nursery forks. To Python's `multiprocessing` they are processes like others."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from multiprocessing import popen_fork, reduction, spawn, util
from multiprocessing.connection import wait
from multiprocessing.context import set_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any, cast

from subbit.runtime.nursery import Nursery, read_number
from subbit.runtime.watch import collect_from_now_on
from subbit.runtime.worker_start import InheritedDescriptor

NURSERY_ENDED = 255


class ForkedProcess(BaseProcess):
    """A process of this nursery, with which it ends. `start` raises `NurseryGone`."""

    _start_method = "spawn"  # For processes that this one starts.

    def __init__(self, nursery: Nursery, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._nursery: Nursery | None = nursery

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_nursery": None}

    def _Popen(self, process: ForkedProcess) -> _Forked:  # As multiprocessing calls it.
        return _Forked(process, self._nursery)

    def run(self) -> None:
        """In the new process."""
        collect_from_now_on()
        super().run()


class _Forked(popen_fork.Popen):
    method = "spawn"
    DupFd = InheritedDescriptor

    def __init__(self, process: ForkedProcess, nursery: Any) -> None:
        self._nursery: Nursery = nursery
        self._descriptors: list[int] = []
        super().__init__(process)

    def duplicate_for_child(self, fd: int) -> int:
        """Called while the process is pickled, for every descriptor that it holds."""
        self._descriptors.append(fd)
        return len(self._descriptors) - 1

    def _launch(self, process: ForkedProcess) -> None:
        pickled, this = io.BytesIO(), cast(Any, self)  # There are no types for processes of somebody else's.
        set_spawning_popen(this)
        try:
            reduction.dump(spawn.get_preparation_data(process.name), pickled)
            reduction.dump(process, pickled)
        finally:
            set_spawning_popen(None)
        self.pid, self.sentinel, sending = self._nursery.fork(self._descriptors)
        # As long as this copy is open, the worker knows that the server lives.
        self.finalizer = util.Finalize(self, _close, (os.dup(sending), self.sentinel))
        # A worker that dies while it reads is found dead by whoever sends it an order.
        with suppress(BrokenPipeError), open(sending, "wb", buffering=0) as file:
            _write_all(file, pickled.getbuffer())

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            if not wait([self.sentinel], 0 if flag == os.WNOHANG else None):
                return None
            try:
                self.returncode = read_number(self.sentinel)
            except (OSError, EOFError):
                self.returncode = NURSERY_ENDED
        return self.returncode

    def _send_signal(self, number: int) -> None:
        """Not to a process whose end was told: the nursery has waited for it, and its number may be another's."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _write_all(file: Any, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)

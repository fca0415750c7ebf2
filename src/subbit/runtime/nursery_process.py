"""What a nursery does: one process that has imported everything and forks a worker for every request.

It computes nothing, so that no library has started threads in it and it has touched no GPU: only such a process can be
forked safely. What a library starts when it is merely imported is found out, since it is still there after a fork
(`alone`); the threads of OpenBLAS are not, it ends them itself before a fork.

A worker ends with its nursery, by the kernel: the nursery has one thread, which lives as long as the process. The
nursery ends with its server, as the end of their socket or as another parent. This file imports only the standard
library, because it is run before the rest is imported.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from subbit.runtime.worker_start import PR_SET_PDEATHSIG, become_worker, end_with

POLL_MILLISECONDS = 500
PATIENCE = 0.5
"""Seconds in which a thread that has ended disappears from the kernel's list."""
PACKET = struct.Struct("qq")
"""How many descriptors come with this packet, and how many are still to come."""
NUMBER = struct.Struct("q")
MOST_DESCRIPTORS = 200
"""In one packet; the kernel allows 253."""


def main(descriptor: int, server: int, module: str, kernels: bool) -> NoReturn:
    """A nursery in a new process: imports the module, with `kernels` loads what calling one needs, and serves."""
    # Only until all is imported: this signal comes when the thread that started the nursery ends, not the process.
    end_with(server)
    gc.disable()
    with suppress(Exception):  # A worker imports it again, and says what is wrong.
        importlib.import_module(module)
        if kernels:
            load_kernels()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)
    serve(socket.socket(fileno=descriptor), server)


def load_kernels() -> None:
    """Load numba with all that the first call of a kernel loads: what masks are drawn by."""
    importlib.import_module("subbit.codecs.sampler").uniforms(0, 0, 1)


def serve(requests: socket.socket, server: int) -> NoReturn:
    """Fork workers as asked, say how each one ended, and end with the server."""
    gc.disable()
    gc.freeze()  # Workers look for garbage only among what they make; looking at the rest would copy it.
    waking, wake = os.pipe()
    for end in (waking, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    workers: dict[int, int] = {}
    """By process: where its end is to be told."""
    poll = select.poll()
    for end in (requests.fileno(), waking):
        poll.register(end, select.POLLIN)
    while os.getppid() == server:
        ready = {end for end, _ in poll.poll(POLL_MILLISECONDS)}
        if waking in ready:
            os.read(waking, 4096)
        _tell_ends(workers)
        if requests.fileno() in ready:
            given = _receive(requests)
            if given is None or (given and not _fork_worker(given, workers, (requests.fileno(), waking, wake))):
                break
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    for worker in workers:
        os.waitpid(worker, 0)  # So that what they used is known to whoever waits for this process.
    os._exit(0)


def _receive(requests: socket.socket) -> list[int] | None:
    """The descriptors for a worker; none of them if this process could not open them all. None: the server ended."""
    found: list[int] = []
    left, complete = 1, True
    while left:
        packet, some, _, _ = socket.recv_fds(requests, PACKET.size, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return None
        here, left = PACKET.unpack(packet)
        found += some
        complete = complete and len(some) == here
    if not complete:
        for descriptor in found:
            os.close(descriptor)
    return found if complete else []


def _fork_worker(given: list[int], workers: dict[int, int], own: Sequence[int]) -> bool:
    """Returns whether this process may go on forking."""
    data, status, tracker, *others = given
    nursery = os.getpid()
    try:
        worker = os.fork()
    except OSError:
        worker = -1  # The server sees the end of the pipe, and does without.
    if worker == 0:
        code = 1
        try:
            for descriptor in (*own, *workers.values(), status):
                os.close(descriptor)
            code = become_worker(nursery, data, tracker, others)
        except SystemExit:
            pass  # Of a main module without `if __name__ == "__main__":`.
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(code)
    for descriptor in (data, tracker, *others):
        os.close(descriptor)
    if worker > 0:
        workers[worker] = status
        if not alone():
            return False
        with suppress(OSError):  # The server may have ended.
            os.write(status, NUMBER.pack(worker))
    else:
        os.close(status)
    return True


def _tell_ends(workers: dict[int, int]) -> None:
    """A process is only waited for once its end is told: until then nobody else gets its number."""
    while workers:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        status = workers.pop(ended.si_pid)
        with suppress(OSError):
            os.write(status, NUMBER.pack(code))
        os.close(status)
        os.waitpid(ended.si_pid, 0)


def alone() -> bool:
    """Whether this process has one thread, right after a fork."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if len(os.listdir("/proc/self/task")) == 1:
                return True
        except OSError:
            return False
        if time.monotonic() > end:
            return False
        time.sleep(0.001)

"""Exact moments for a disturbance: the N-th file change, the N-th evaluation, a write that is cut off after N bytes.

Each is set up in the child before it begins. It sends a signal to the process itself or to its group.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "os.rmdir"}


def count_changes(into: Path) -> Callable[[], None]:
    """Write the number of file changes to a file at exit."""

    def before() -> None:
        import atexit

        counted = _watch_changes(lambda number: None)
        atexit.register(lambda: into.write_text(str(counted[0])))

    return before


def at_change(number: int, sent: int, *, group: bool = False) -> Callable[[], None]:
    """Just before the N-th file change under the working folder: open for writing, rename, remove, truncate."""

    def before() -> None:
        def act(at: int) -> None:
            if at == number:
                _send(sent, group)

        _watch_changes(act)

    return before


def _watch_changes(act: Callable[[int], None]) -> list[int]:
    counted, here, me = [0], os.getcwd(), os.getpid()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            changes = (isinstance(mode, str) and mode[:1] in "wax") or "+" in str(mode)
            changes = changes or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
        elif event in CHANGES:
            path, changes = arguments[0], True
        else:
            return
        if not changes or isinstance(path, int) or os.getpid() != me:
            return
        if os.path.abspath(os.fsdecode(path)).startswith(here):
            counted[0] += 1
            act(counted[0])

    sys.addaudithook(hook)
    return counted


def at_call(name: str, number: int, sent: int, *, after: bool = False) -> Callable[[], None]:
    """Before or after the N-th `client_turn` or `evaluation_turn` of this process (so with one worker)."""

    def before() -> None:
        from subbit.runtime import engines

        usual, count = getattr(engines, name), [0]

        def turn(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] == number and not after:
                _send(sent, False)
            answer = usual(*arguments)
            if count[0] == number and after:
                _send(sent, False)
            return answer

        setattr(engines, name, turn)

    return before


def at_byte(size: int, *, kill: bool) -> Callable[[], None]:
    """Limit the size of files, so that a write is cut off there. The kernel then kills the process or rejects the
    write.
    """

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return before


def _send(number: int, group: bool) -> None:
    if group:
        os.killpg(0, number)
    else:
        os.kill(os.getpid(), number)

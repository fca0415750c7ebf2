"""Ctrl-C that is not lost.

Python ignores what is raised inside a destructor (`__del__`), and so a KeyboardInterrupt that comes then. Compiling a
kernel calls many. What was asked for is remembered here, and the next round does not begin.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_asked: list[bool] = []


def remember_interrupts() -> None:
    """At the start of a command. A handler that somebody else has set stays."""
    _asked.clear()
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if plain and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _asked.append(True)
    signal.default_int_handler(number, frame)


def stop_if_interrupted() -> None:
    """Raise the KeyboardInterrupt that was lost, if there was one."""
    if _asked:
        _asked.clear()
        raise KeyboardInterrupt

"""What the process is busy with: said by whatever may take long, shown by a command. Nobody has to listen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str], None]
_listeners: list[Listener] = []
_now = ""


def busy_with(what: str) -> None:
    """From now on, e.g. `busy_with("reading digits")`. Details follow a colon: "round 2: 3 of 10 clients answered"."""
    global _now
    _now = what
    for listener in tuple(_listeners):
        listener(what)


def now_busy_with() -> str:
    return _now


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)

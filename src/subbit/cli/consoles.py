"""Where commands print: results to stdout, all else to stderr. Colours follow NO_COLOR, TERM and the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.live import Live

# No emoji: `model=net:key:` in an error is no key.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)
_changing: list[Live] = []


def say(line: str | Text) -> None:
    """A line of a result, as it is: longer than the terminal, it wraps."""
    with _paused():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def changing(live: Live) -> Iterator[None]:
    """Lines of progress that change in place. Results that are printed meanwhile come above them."""
    with live:
        _changing.append(live)
        try:
            yield
        finally:
            _changing.remove(live)


@contextmanager
def _paused() -> Iterator[None]:
    """Both streams may be the same terminal: without the lines of progress while a result is printed."""
    with ExitStack() as again:
        for live in _changing:
            live.stop()
            again.callback(live.start)
        yield


def note(line: str) -> None:
    """A line beside the result, to stderr."""
    errors.print(line, highlight=False, markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))

"""Where commands print: results to stdout, all else to stderr. Colours follow NO_COLOR, TERM and the terminal."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

# No emoji: `model=net:key:` in an error is no key.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def say(line: str) -> None:
    """A line of a result, as it is: longer than the terminal, it wraps."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def note(line: str) -> None:
    """A line beside the result, to stderr."""
    errors.print(line, highlight=False, markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))

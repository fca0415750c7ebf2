"""Fetches replies from nodes, so that an unreadable one fails only its own node and not the run.

Flower decodes a reply from the bytes uploaded by a node, raises if they are malformed, and then loses all replies of
the same call. It also takes from these bytes which message they reply to. Each reply is therefore fetched separately:
an unreadable one is attributed to its node, and a readable one always belongs to the message sent to that node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

UNREADABLE = (DecodeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors that malformed input causes in a parser. Connection errors are different and end the run, as they should."""


class Mailbox:
    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def push(self, message: Message) -> str | None:
        """The message's ID, or none if Flower rejects it. Pushed one at a time, so that it is clear which was
        rejected."""
        return next(iter(self._grid.push_messages([message])), None)

    def pull(self, asked: Iterable[str]) -> Iterator[tuple[str, Message | None]]:
        """The replies that have arrived, each with the ID of its message; none instead of an unreadable reply."""
        for name in asked:
            try:
                answers = list(self._grid.pull_messages([name]))
            except UNREADABLE:
                yield name, None
                continue
            for answer in answers[:1]:
                yield name, answer if answer.has_error() or answer.has_content() else None

"""Answers from nodes, fetched so that one that cannot be read costs the node that sent it, and not the run.

Flower puts an answer together from the bytes that a node uploaded, raises if they are not what they should be, and then
has lost every answer of the same call. It also takes from these bytes which message they answer. So each is fetched by
itself: what cannot be read is that node's, and what is read answers what that node was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

UNREADABLE = (DecodeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What comes of rubbish in a parser. Errors of the connection are others, and end the run as they should."""


class Mailbox:
    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def push(self, message: Message) -> str | None:
        """The message's identity, or nothing where Flower refuses it. One at a time, so that it is clear which."""
        return next(iter(self._grid.push_messages([message])), None)

    def pull(self, asked: Iterable[str]) -> Iterator[tuple[str, Message | None]]:
        """Answers that have come, each with the message that it answers; nothing in the place of an unreadable one."""
        for name in asked:
            try:
                answers = list(self._grid.pull_messages([name]))
            except UNREADABLE:
                yield name, None
                continue
            for answer in answers[:1]:
                yield name, answer if answer.has_error() or answer.has_content() else None

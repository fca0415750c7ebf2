"""Answers from nodes, fetched so that one that cannot be read costs the node that sent it, and not the run.

Flower puts an answer together from the bytes that a node uploaded, and raises if they are not what they should be. It
takes the other answers of the same call down with it. So after the first such answer every one is fetched by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

AT_ONCE = 8
"""Undecoded answers that are in memory at the same time."""
UNREADABLE = (DecodeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What comes of rubbish in a parser. Errors of the connection are others, and end the run as they should."""
log = logging.getLogger("flwr")  # Flower's own log, which `flwr run --stream` shows.


class Mailbox:
    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._alone = False
        """Somebody sent something that cannot be read: trust nobody's answer in the company of others."""

    def push(self, message: Message) -> str | None:
        """The message's identity, or nothing where Flower refuses it. One at a time, so that it is clear which."""
        return next(iter(self._grid.push_messages([message])), None)

    def pull(self, asked: Sequence[str]) -> Iterator[tuple[str, Message | None]]:
        """Answers that have come, each with the message that it answers; nothing in the place of an unreadable one."""
        start = 0
        while start < len(asked):
            names = asked[start : start + (1 if self._alone else AT_ONCE)]
            start += len(names)
            yield from self._pull(names)

    def _pull(self, names: Sequence[str]) -> Iterator[tuple[str, Message | None]]:
        try:
            answers = list(self._grid.pull_messages(list(names)))
        except UNREADABLE as error:
            if len(names) == 1:
                log.warning("An answer cannot be read (%s)", type(error).__name__)
                yield names[0], None
                return
            self._alone = True
            for name in names:
                yield from self._pull([name])
            return
        for answer in answers:
            # What it answers stands in the answer itself. Asked for alone, it can be no other.
            name = names[0] if len(names) == 1 else answer.metadata.reply_to_message_id
            if name in names:
                yield name, answer
            else:
                self._alone = True

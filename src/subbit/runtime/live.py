"""What happens inside the round in progress, for those who watch (`subbit board`): `live.jsonl` in the run folder.

No result depends on this file. It is not flushed to disk, no manifest names it, and if it cannot be written the run
goes on without it. Every round begins it anew. A finished run removes it; one that stops leaves it, with the reason in
the last line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import SubbitError
from subbit.core.json_records import as_json
from subbit.runtime.client import EvaluationOrder
from subbit.runtime.engines import Engine
from subbit.runtime.live_lines import LIVE, Asked, Replied, Stopped
from subbit.runtime.messages import Order, Reply


class LiveFile:
    def __init__(self, folder: Path) -> None:
        self._path = folder / LIVE
        self._file: FileIO | None = None
        self._round: tuple[str, int] | None = None
        self._asked = 0.0

    def __enter__(self) -> LiveFile:
        self._remove()  # What a run that was killed has left is not news of this one.
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._remove()
            return
        if self._file is None:
            self._begin()
        self._write(Stopped(at=time.time(), error=_reason(error)))
        self._close()

    def asked(self, orders: Sequence[Order]) -> None:
        if not orders:
            return
        first, self._asked = orders[0], time.monotonic()
        number = (first.phase, first.round_number)
        # Questions about a round's result follow the news of that round.
        if self._round is None or (first.purpose in ("train", "loss") and number != self._round):
            self._round = number
            self._begin()
        clients = tuple(order.client for order in orders)
        self._write(Asked(at=time.time(), phase=number[0], round=number[1], purpose=first.purpose, clients=clients))

    def replied(self, reply: Reply) -> None:
        cause, message = (None, None) if reply.failure is None else (reply.failure.cause, reply.failure.message)
        seconds, sent = round(time.monotonic() - self._asked, 3), sum(map(len, reply.frames))
        self._write(Replied(client=reply.client, seconds=seconds, bytes=sent, cause=cause, message=message))

    def _begin(self) -> None:
        self._remove()
        try:
            self._file = self._path.open("xb", buffering=0)
        except OSError:
            self._file = None

    def _write(self, line: Asked | Replied | Stopped) -> None:
        if self._file is not None:
            try:
                self._file.write((json.dumps(as_json(line)) + "\n").encode())
            except OSError:
                self._close()

    def _remove(self) -> None:
        self._close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _reason(error: BaseException) -> str:
    if isinstance(error, SubbitError):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else "interrupted"


class FollowedEngine:
    """Writes down whom an engine asks and who replies, and changes nothing about either."""

    def __init__(self, engine: Engine, live: LiveFile) -> None:
        self._engine, self._live = engine, live

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self._live.asked(orders)
        for reply in self._engine.train(orders):
            self._live.replied(reply)
            yield reply

    def candidates(self, clients: list[int]) -> list[int]:
        return self._engine.candidates(clients)

    def evaluate(self, orders: Sequence[EvaluationOrder]) -> list[NDArray[np.float64]]:
        return self._engine.evaluate(orders)

    def close(self) -> None:
        self._engine.close()

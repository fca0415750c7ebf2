"""What clients keep between their turns: one file per client and turn.

    FOLDER/CLIENT/TURN.safetensors      TURN is 0 for the head phase, 1 + round in the main phase

The server stores only the turn of each client's last accepted reply and names it in its orders; the client then starts
from the memory of that turn. So the server's state does not grow with the clients' memories, and a resumed run requests
the same files again. A reply that was lost leaves a file that is never requested.

The last two checkpoints are kept, so a client keeps the memories that these may name: that of this turn, of the turn it
started from, and of the one before that. Others are deleted when it writes the next one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from subbit.core.array_files import Arrays, DamagedFileError, digest_of, read_arrays, read_digest, write_arrays
from subbit.core.errors import FrameError

Memory = Arrays
NO_MEMORY = -1
"""In place of a turn: the client keeps nothing."""


def turn_number(phase: Literal["head", "main"], round_number: int) -> int:
    return 0 if phase == "head" else 1 + round_number


class Memories(Protocol):
    def read(self, client: int, turn: int) -> Memory:
        """What the client kept after that turn. Raises `FrameError` with the cause `memory` if it is missing or
        damaged."""

    def write(self, client: int, turn: int, memory: Memory, used: int) -> int:
        """Store what the client keeps after this turn, which started from `used`.

        Returns the turn to request next time: this one, `used` if nothing has changed, or `NO_MEMORY` if there is
        nothing to keep.
        """


class MemoriesInRam:
    """For runs without a folder, in one process."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, Memory]] = {}

    def read(self, client: int, turn: int) -> Memory:
        if turn == NO_MEMORY:
            return {}
        try:
            return dict(self._kept[client][turn])
        except KeyError:
            raise _lost(client, turn, "nothing is kept") from None

    def write(self, client: int, turn: int, memory: Memory, used: int) -> int:
        if not memory:
            return NO_MEMORY
        before = self._kept.get(client, {})
        # If this reply is rejected, the turn it started from is requested again.
        self._kept[client] = {other: kept for other, kept in before.items() if other == used} | {turn: dict(memory)}
        return turn


class ClientMemories:
    """Files in a folder. `durable`: flushed to disk at once, so that nothing is lost in a power failure.

    A simulation writes too much for that. After a power failure it may have to go back one round, see
    `subbit.runtime.folder`.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder, self._durable = folder, durable

    def read(self, client: int, turn: int) -> Memory:
        if turn == NO_MEMORY:
            return {}
        try:
            return read_arrays(self.path(client, turn))[0]
        except DamagedFileError as error:
            # Without the folder: the message goes to the server, which does not need the node's path.
            raise _lost(client, turn, str(error).replace(f"{self.folder}/", "")) from None

    def write(self, client: int, turn: int, memory: Memory, used: int) -> int:
        if not memory:
            return NO_MEMORY
        digest = digest_of(memory, {})
        if used != NO_MEMORY and read_digest(self.path(client, used)) == digest:
            return used
        path = self.path(client, turn)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_arrays(path, memory, {}, digest=digest, durable=self._durable)
        self._forget(client, turn, used)
        return turn

    def has(self, client: int, turn: int) -> bool:
        """Whether the file exists and is complete. Its contents are checked when it is read."""
        return read_digest(self.path(client, turn)) is not None

    def path(self, client: int, turn: int) -> Path:
        return self.folder / str(client) / f"{turn}.safetensors"

    def _forget(self, client: int, turn: int, used: int) -> None:
        turns = [int(path.stem) for path in self.path(client, turn).parent.glob("*.safetensors") if path.stem.isdigit()]
        before_used = max((other for other in turns if other < used), default=NO_MEMORY)
        for other in turns:
            if other not in (turn, used, before_used):
                self.path(client, other).unlink(missing_ok=True)


def _lost(client: int, turn: int, reason: str) -> FrameError:
    return FrameError(
        "memory", f"what client {client} kept of turn {turn} is gone, it starts afresh next time ({reason})"
    )

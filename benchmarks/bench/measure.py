"""How benchmarks measure: seconds of one thread, bytes of real frames, and versions of the software."""

from __future__ import annotations

import importlib.metadata
import platform
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from subbit.codecs import Shared
from subbit.wire import Address, Direction, pack_frame

Result = TypeVar("Result")

ENOUGH_SECONDS = 0.25
FEWEST_RUNS, MOST_RUNS = 3, 15
BUILDS = 8
NOBODYS_NUMBER = 0
"""Codec number in the frames of references, which have none. It does not affect lengths."""
PACKAGES = ("numpy", "numba", "torch", "constriction", "pyfusefilter")


class Coder(Protocol):
    """Common interface of our codecs and the wrapped references."""

    def encode(self, payload: Any, shared: Shared) -> bytes: ...

    def decode(self, data: bytes, shared: Shared) -> Any: ...


@dataclass(frozen=True)
class Transfer:
    """One payload sent through a codec and a frame. Seconds are those of the codec alone."""

    frame_bytes: int
    encode_seconds: float
    decode_seconds: float
    decoded: Any

    def summary(self, size: int) -> dict[str, float]:
        return {
            "frame_bytes": self.frame_bytes,
            "bpp": 8 * self.frame_bytes / size,
            "encode_ns": nanoseconds(self.encode_seconds, size),
            "decode_ns": nanoseconds(self.decode_seconds, size),
        }


def best_seconds(function: Callable[[], Result], warm_up: bool = True) -> tuple[float, Result]:
    """The minimum over several runs, in seconds, and the return value of the function.

    Measures CPU time of this thread: time taken by other processes is not counted, waiting for memory is. The warm-up
    run compiles kernels and fills caches and is not counted; at least three runs follow. Without warm-up, for
    references that take seconds, one long run is enough.
    """
    if warm_up:
        function()
    fewest = FEWEST_RUNS if warm_up else 1
    best, total, runs = float("inf"), 0.0, 0
    while True:
        start = time.thread_time()
        result = function()
        seconds = time.thread_time() - start
        best, total, runs = min(best, seconds), total + seconds, runs + 1
        if runs >= fewest and (total >= ENOUGH_SECONDS or runs >= MOST_RUNS):
            return best, result


def mean_build(build: Callable[[int], object]) -> float:
    """Seconds of a construction that depends on a seed: the mean over several seeds of the best of several runs."""
    return sum(best_seconds(partial(build, seed))[0] for seed in range(BUILDS)) / BUILDS


def transfer(coder: Coder, payload: Any, shared: Shared, warm_up: bool = True) -> Transfer:
    encode_seconds, data = best_seconds(lambda: coder.encode(payload, shared), warm_up)
    decode_seconds, decoded = best_seconds(lambda: coder.decode(data, shared), warm_up)
    return Transfer(frame_length(coder, data, shared.size), encode_seconds, decode_seconds, decoded)


def frame_length(coder: Coder, data: bytes, size: int) -> int:
    """Bytes on the wire: the frame is actually built, not estimated."""
    number = getattr(coder, "number", NOBODYS_NUMBER)
    return len(pack_frame(data, Address(Direction.UP, 0, number, b"template", 0, 0, size)))


def nanoseconds(seconds: float, count: int) -> float:
    return 1e9 * seconds / count


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in ("subbit", *PACKAGES)}
    return {"python": platform.python_version(), "zlib": zlib.ZLIB_RUNTIME_VERSION, **found}

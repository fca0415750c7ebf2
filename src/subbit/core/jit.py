"""Typed version of numba's `njit`: the kernels keep their signatures for readers and for mypy.

numba caches compiled kernels next to their source and recompiles when *that* file changes. A kernel may call kernels of
other files, whose machine code is inlined into its own. After a change there, numba would keep using the old code,
which in the worst case assumes another array length. So every kernel's cache stamp also covers all files of
`subbit.codecs`, whose kernels others call.

`subbit compile` fills the cache. Where the folder of the source cannot be written, numba uses one in the user's home,
and where that cannot be written either, kernels are compiled in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba
from numba.core import event

from subbit.core.busy import busy_with, now_busy_with

Function = TypeVar("Function", bound=Callable[..., object])


def _folder_stamp() -> tuple[tuple[str, int, int], ...]:
    files = [Path(__file__), *sorted((Path(__file__).parents[1] / "codecs").glob("*.py"))]
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


FOLDER_STAMP = _folder_stamp()


class _Compiling(event.Listener):  # type: ignore[misc]
    """Says which kernel is compiled. What the cache has is not compiled, and not said."""

    def __init__(self) -> None:
        self.depth, self.before = 0, ""

    def on_start(self, started: event.Event) -> None:
        if not self.depth:
            self.before = now_busy_with()
        self.depth += 1
        function = started.data["dispatcher"].py_func
        ours = function.__module__.startswith("subbit")  # A kernel may need functions of numba's own.
        busy_with(f"compiling kernels: {function.__name__}" if ours else "compiling kernels")

    def on_end(self, ended: event.Event) -> None:
        self.depth -= 1
        if not self.depth:
            busy_with(self.before)


event.register("numba:compile", _Compiling())


def njit(function: Function) -> Function:
    """Compile on first use and cache the machine code next to the source. One thread, IEEE arithmetic, no fastmath."""
    try:
        compiled: Function = numba.njit(cache=True)(function)
    except RuntimeError:  # numba found no folder that it can write.
        return cast(Function, numba.njit(function))
    # Not a public attribute of numba. Where it is missing (also with NUMBA_DISABLE_JIT=1), numba's own stamp is used.
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None and hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, FOLDER_STAMP)
    return compiled

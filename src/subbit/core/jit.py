"""Typed version of numba's `njit`: the kernels keep their signatures for readers and for mypy.

numba caches compiled kernels next to their source and recompiles when *that* file changes. A kernel may call kernels of
other files, whose machine code is inlined into its own. After a change there, numba would keep using the old code,
which in the worst case assumes another array length. So every kernel's cache stamp also covers all files of
`subbit.codecs`, whose kernels others call.

`subbit compile` fills the cache. Where the folder of the source cannot be written, numba uses one in the user's home,
and where that cannot be written either, kernels are compiled in every process.

numba itself is imported when the first kernel is called: with what it then loads it takes a quarter of a second, and
many runs, e.g. FedAvg of a small network, call none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from typing import Any, TypeVar, cast

from subbit.core.busy import busy_with, now_busy_with
from subbit.core.garbage import uncollected

Function = TypeVar("Function", bound=Callable[..., object])


def _stamp(*files: Path) -> tuple[tuple[str, int, int], ...]:
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


FOLDER_STAMP = _stamp(Path(__file__), *sorted((Path(__file__).parents[1] / "codecs").glob("*.py")))


class Kernel:
    """A function that is compiled on first use. Kernels may call it: to numba it is what it compiles to."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        # Of the source as it was read. numba looks at it only when the function is first called, maybe after a change.
        self._source = _stamp(Path(function.__code__.co_filename))
        update_wrapper(self, function)

    @cached_property
    def _compiled(self) -> Any:
        numba = _numba()
        try:
            compiled = numba.njit(cache=True)(self._function)
        except RuntimeError:  # numba found no folder that it can write.
            return numba.njit(self._function)
        # Not a public attribute of numba. Where it is missing (also with NUMBA_DISABLE_JIT=1), its own stamp is used.
        index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if index is not None and hasattr(index, "_source_stamp"):
            index._source_stamp = (index._source_stamp, self._source, FOLDER_STAMP)
        return compiled

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # What copying and pickling look for.
            raise AttributeError(name)
        return getattr(self._compiled, name)

    def __reduce__(self) -> str:
        """Copied and pickled like a function: by its name."""
        return str(self.__qualname__)


def njit(function: Function) -> Function:
    """Compile on first use and cache the machine code next to the source. One thread, IEEE arithmetic, no fastmath."""
    return cast(Function, Kernel(function))


@cache
def _numba() -> Any:
    with uncollected(freeze=False):
        import numba
        from numba.core import event

    class Compiling(event.Listener):  # type: ignore[misc]
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

    event.register("numba:compile", Compiling())
    return numba

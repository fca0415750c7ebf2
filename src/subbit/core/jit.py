"""numba's `njit` with a type, so that the kernels keep their signatures for readers and for mypy.

numba keeps compiled kernels beside their source and compiles anew when *that* file has changed. A kernel here calls
kernels of other files, whose machine code is part of its own: after a change there, numba would go on with the old
one, in the worst case with another idea of how long an array is. So every kernel's stamp also covers all files of
this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def _folder_stamp() -> tuple[tuple[str, int, int], ...]:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


FOLDER_STAMP = _folder_stamp()


def njit(function: Function) -> Function:
    """Compile on first use and keep the machine code beside the source. One thread, IEEE arithmetic, no fastmath."""
    compiled: Function = numba.njit(cache=True)(function)
    # Not a public attribute of numba: where it is missing (also with NUMBA_DISABLE_JIT=1) its own stamp must do.
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None and hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, FOLDER_STAMP)
    return compiled

"""numba's `njit` with a type, so that the kernels keep their signatures for readers and for mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def njit(function: Function) -> Function:
    """Compile on first use and keep the machine code beside the source. One thread, IEEE arithmetic, no fastmath."""
    compiled: Function = numba.njit(cache=True)(function)
    return compiled

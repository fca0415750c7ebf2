"""Python's collector of garbage while modules are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*, freeze: bool = True) -> Iterator[None]:
    """Inside, nothing is collected. Modules stay, so that looking for garbage among them finds nothing and takes a
    tenth of the time until a run begins; what was imported is not looked at later, either. Not so without `freeze`, for
    where there may be garbage already, which would be kept."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if freeze:
                gc.freeze()
            gc.enable()

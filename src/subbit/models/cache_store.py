"""Memory for one row of values per example: of this process, shared with workers, or a file mapped into memory.

A store goes to other processes by pickling, without its contents. Shared memory and the file have no name, so nothing
is left behind when the processes end, however they end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

SHARED_MEMORY = Path("/dev/shm")
OPEN_FILES = Path("/proc/self/fd")


class CacheStore:
    def __init__(self, values: Tensor, filled: Tensor, file: BinaryIO | None = None) -> None:
        self.values, self.filled = values, filled
        """`values` [rows, width]; `filled` [rows]: 1 where they are valid."""
        self._file = file

    @property
    def exact(self) -> bool:
        return self.values.dtype == torch.float32

    def keep(self, rows: Tensor, values: Tensor) -> None:
        # The mark comes last: another process may read the row as soon as it sees it.
        self.values[rows] = values.to(self.values.dtype)
        self.filled[rows] = 1

    def __getstate__(self) -> dict[str, Any]:
        if self._file is None:
            return {"values": self.values, "filled": self.filled}
        path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        return {"path": path, "shape": tuple(self.values.shape), "dtype": self.values.dtype, "filled": self.filled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._file = None
        self.filled = state["filled"]
        self.values = state["values"] if "values" in state else _mapped(state["path"], state["shape"], state["dtype"])


def make_store(shape: tuple[int, int], dtype: torch.dtype, most_bytes: int, shared: bool) -> CacheStore | None:
    """A store for [rows, width], in memory if it takes no more than `most_bytes`, else in a file. None: no room."""
    size = shape[0] * shape[1] * dtype.itemsize
    filled = torch.zeros(shape[0], dtype=torch.uint8)
    if shared:
        filled.share_memory_()  # type: ignore[no-untyped-call]
    if size > most_bytes or (shared and not _fits(SHARED_MEMORY, size)):
        return _in_file(shape, dtype, filled)
    if not shared:
        return CacheStore(torch.empty(shape, dtype=dtype), filled)
    # Not `share_memory_`, which would copy the empty tensor and so take all the memory at once.
    storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
    return CacheStore(torch.empty(0, dtype=dtype).set_(storage, 0, torch.Size(shape)), filled)  # type: ignore[call-overload]


def _in_file(shape: tuple[int, int], dtype: torch.dtype, filled: Tensor) -> CacheStore | None:
    size = shape[0] * shape[1] * dtype.itemsize
    if not OPEN_FILES.exists() or not _fits(Path(tempfile.gettempdir()), size):
        return None
    file = tempfile.TemporaryFile(prefix="subbit-cache-")  # noqa: SIM115  # Open as long as the store is used.
    # Reserve the space now: a full disk would end the process when a page is written.
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        return None
    return CacheStore(_mapped(f"{OPEN_FILES}/{file.fileno()}", shape, dtype), filled, file)


def _mapped(path: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    return torch.from_file(path, shared=True, size=shape[0] * shape[1], dtype=dtype).view(shape)


def _fits(folder: Path, size: int) -> bool:
    """Whether this takes at most half of the free space."""
    return folder.exists() and 2 * size <= shutil.disk_usage(folder).free

"""Large byte strings and arrays go to and from worker processes through shared memory instead of a pipe.

A broadcast is packed once for all orders that hold the same object. torch passes on a handle and frees the memory when
no process uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.multiprocessing  # Tensors are pickled as handles once this is imported.
from torch import Tensor

LARGE = 1 << 16
"""Bytes from which on this is faster than a pipe."""


@dataclass(frozen=True)
class SharedBytes:
    memory: Tensor

    def open(self) -> bytes:
        return self.memory.numpy().tobytes()


@dataclass(frozen=True)
class SharedArray:
    memory: Tensor
    dtype: str
    shape: tuple[int, ...]

    def open(self) -> np.ndarray[Any, Any]:
        """The array itself, not a copy: not to be written to, since other processes read it."""
        array = self.memory.numpy().view(self.dtype).reshape(self.shape)
        array.flags.writeable = False
        return array


class Packer:
    """Packs what is large, wherever it is in tuples and dicts."""

    def __init__(self) -> None:
        self._packed: dict[int, tuple[Any, SharedBytes | SharedArray]] = {}
        """By identity of the object, which is kept so that no other object gets its identity."""

    def pack(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.pack, value))
        if isinstance(value, dict):
            return {key: self.pack(held) for key, held in value.items()}
        if isinstance(value, bytes) and len(value) >= LARGE:
            return self._once(value)
        if isinstance(value, np.ndarray) and value.nbytes >= LARGE:
            return self._once(value)
        return value

    def _once(self, value: Any) -> SharedBytes | SharedArray:
        if id(value) not in self._packed:
            if isinstance(value, bytes):
                packed: SharedBytes | SharedArray = SharedBytes(_shared(np.frombuffer(value, dtype=np.uint8)))
            else:
                flat = np.ascontiguousarray(value).reshape(-1)
                packed = SharedArray(_shared(flat.view(np.uint8)), value.dtype.str, value.shape)
            self._packed[id(value)] = value, packed
        return self._packed[id(value)][1]


def _shared(values: np.ndarray[Any, Any]) -> Tensor:
    memory = torch.empty(0, dtype=torch.uint8)
    memory.set_(torch.UntypedStorage._new_shared(values.nbytes))  # type: ignore[no-untyped-call]
    memory.numpy()[:] = values
    return memory


def unpack(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(unpack, value))
    if isinstance(value, dict):
        return {key: unpack(held) for key, held in value.items()}
    return value.open() if isinstance(value, SharedBytes | SharedArray) else value

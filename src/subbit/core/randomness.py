"""Explicit randomness: every draw comes from a key derived from (seed, purpose, round, client).

No global generator is used. Results therefore depend neither on the engine nor on the number of workers, and a resumed
run makes the same draws as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

MASK_64 = (1 << 64) - 1
NOBODY = -1  # The client number of draws made by the server.


def derive_key(seed: int, purpose: str, round_number: int = 0, client: int = NOBODY, *more: int) -> int:
    """Derive a 64-bit key for one purpose. Keys of different arguments are independent for all practical purposes.

    >>> derive_key(0, "mask", 3, 7) == derive_key(0, "mask", 3, 7)
    True
    >>> derive_key(0, "mask", 3, 7) == derive_key(0, "mask", 7, 3)
    False
    """
    text = "/".join([purpose, *(str(int(number)) for number in (seed, round_number, client, *more))])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def numpy_generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key & MASK_64))


# Imported here because codecs use this module and do not need torch.


def torch_generator(key: int) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(key & (MASK_64 >> 1))


@contextmanager
def torch_randomness(key: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators of the CPU and of this device, which dropout and other random layers use, and
    restore them afterwards."""
    import torch

    kind = "cpu" if device is None else device.type
    elsewhere = [] if device is None or kind == "cpu" else [device]
    with torch.random.fork_rng(devices=elsewhere, device_type="cuda" if kind == "cpu" else kind):
        torch.default_generator.manual_seed(key & (MASK_64 >> 1))
        if elsewhere:
            getattr(torch, kind).manual_seed(key & (MASK_64 >> 1))
        yield

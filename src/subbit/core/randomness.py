"""Randomness is an argument: every draw comes from a key derived from (seed, purpose, round, client).

No global generator is ever used, so neither the engine nor the number of workers changes a bit of a result, and
a resumed run draws what the uninterrupted one would have drawn.
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
NOBODY = -1  # The client of draws that belong to the server.


def derive_key(seed: int, purpose: str, round_number: int = 0, client: int = NOBODY, *more: int) -> int:
    """A 64-bit key for one purpose. Distinct arguments give keys that are independent for all practical ends.

    >>> derive_key(0, "mask", 3, 7) == derive_key(0, "mask", 3, 7)
    True
    >>> derive_key(0, "mask", 3, 7) == derive_key(0, "mask", 7, 3)
    False
    """
    text = "/".join([purpose, *(str(int(number)) for number in (seed, round_number, client, *more))])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def numpy_generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key & MASK_64))


# Codecs draw too, and need no torch: it is imported where it is wanted.


def torch_generator(key: int) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(key & (MASK_64 >> 1))


@contextmanager
def torch_randomness(key: int) -> Iterator[None]:
    """Dropout and other random layers draw from torch's global generator and take no argument: seed it here, restore
    it after.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key & (MASK_64 >> 1))
        yield

"""The shared sampler in torch, for vectors on a device: the same bits as `subbit.codecs.sampler` from the same key.

torch has no unsigned 32-bit arithmetic on every device. The words are int32, whose products and sums wrap around in the
same way; a shift to the right copies the sign, which a mask removes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from subbit.codecs.sampler import MULTIPLIER_1, MULTIPLIER_2, MULTIPLIER_3, subkeys

BLOCK = 1 << 22
"""Places at a time, so that intermediate results stay small beside the vector."""
UNIT_24 = 2.0**-24  # 24 random bits are exact in float32.


def in_blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))


def uniforms_24(key: int, start: int, count: int, device: torch.device) -> Tensor:
    """float32 in [0, 1): the upper 24 bits of u_start ... u_{start + count - 1}."""
    first, second, third = (_signed(int(word)) for word in subkeys(key))
    x = torch.arange(start, start + count, device=device, dtype=torch.int64).to(torch.int32)
    x ^= first
    x = _mixed(x, 16, int(MULTIPLIER_1))
    x += second
    x = _mixed(x, 15, int(MULTIPLIER_2))
    x ^= third
    x = _mixed(x, 14, int(MULTIPLIER_3))
    x ^= _shifted(x, 15)
    return _shifted(x, 8).to(torch.float32) * UNIT_24


def _mixed(x: Tensor, shift: int, multiplier: int) -> Tensor:
    return (x ^ _shifted(x, shift)) * _signed(multiplier)


def _shifted(x: Tensor, places: int) -> Tensor:
    return (x >> places) & ((1 << (32 - places)) - 1)


def _signed(word: int) -> int:
    """The int32 with the bits of this word."""
    return word - (1 << 32) if word >= 1 << 31 else word

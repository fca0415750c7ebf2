"""Small integers as bit planes: plane p holds bit p of every value, packed into bytes, so b bits cost exactly b bits
per value.

Planes need no shifts across bytes, run at the speed of `np.packbits`, and can each cover a different number of values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.float_format import check_length
from subbit.core.errors import PayloadError

Levels = NDArray[Any]  # Unsigned integers of any width.


def plane_bytes(count: int, bits: int) -> int:
    return bits * ((count + 7) // 8)


def pack_planes(levels: Levels, first_bit: int, bits: int) -> bytes:
    """Planes first_bit ... first_bit + bits - 1 of the levels."""
    planes = range(first_bit, first_bit + bits)
    return b"".join(np.packbits((levels >> plane) & 1, bitorder="little").tobytes() for plane in planes)


def unpack_planes(data: bytes, first_bit: int, bits: int, levels: Levels) -> None:
    """Set those bits in `levels`, which must be zero there. Rejects a wrong length and nonzero padding."""
    check_length(data, plane_bytes(levels.size, bits), f"{levels.size} values of {bits} bits")
    planes = np.frombuffer(data, dtype=np.uint8).reshape(bits, plane_bytes(levels.size, 1))
    padding = -levels.size % 8
    if padding and (planes[:, -1:] >> (8 - padding)).any():
        raise PayloadError("the padding after the last value is not zero")
    for place in range(bits):
        plane = np.unpackbits(planes[place], count=levels.size, bitorder="little")
        levels |= plane.astype(levels.dtype) << (first_bit + place)

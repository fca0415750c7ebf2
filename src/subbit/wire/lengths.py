"""How long the frame of a vector is, without the vector: by the codec's own formula, or that of normal values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from subbit.codecs import Codec, Shared
from subbit.codecs.codec import MAXIMUM_SIZE
from subbit.core.randomness import numpy_generator
from subbit.wire.frame import HEADER_BYTES

MOST_ENCODED = 1 << 22
"""Values of the longest vector that is encoded only to see its length: a few seconds with the slowest codec."""


@dataclass(frozen=True)
class FrameLength:
    bytes: int
    how: Literal["exact", "encoded", "extrapolated"]
    """`exact`: the length of every frame of this size. `encoded`: the length of one that was made, of normal values;
    others differ a little. `extrapolated`: the payload of a shorter one of these, times the ratio of the sizes."""


def frame_length(codec: Codec[Any], size: int) -> FrameLength | None:
    """For a codec of vectors; None if a frame cannot hold so many values."""
    if size >= MAXIMUM_SIZE:
        return None
    fixed = codec.fixed_length(size)
    if fixed is not None:
        return FrameLength(HEADER_BYTES + fixed, "exact")
    some = min(size, MOST_ENCODED)
    payload = codec.encode(numpy_generator(0).standard_normal(some).astype(np.float32), Shared(some))
    if some == size:
        return FrameLength(HEADER_BYTES + len(payload), "encoded")
    return FrameLength(HEADER_BYTES + round(len(payload) * size / some), "extrapolated")

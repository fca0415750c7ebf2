"""Uncompressed values: 32 bits (exact), or 16 bits in IEEE half precision or bfloat16 (rounded to nearest)."""

from __future__ import annotations

from dataclasses import dataclass

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import VALUE_BYTES, check_value_format, check_vector, values_from_bytes, values_to_bytes


@register_codec
@dataclass(frozen=True)
class Dense(Codec[Vector]):
    """`dtype`: "float32" (exact, bit for bit), "float16" (relative error 2^-11, up to 65504) or "bfloat16" (2^-8)."""

    name = "dense"
    number = 1
    kind = Kind.VECTOR
    exact = True  # For the default, float32; instances with 16 bits set it to False.
    summary = "float32 as it is; dtype=float16 or bfloat16 for half the bytes"

    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_value_format(self.dtype)
        object.__setattr__(self, "exact", self.dtype == "float32")

    def fixed_length(self, size: int) -> int:
        return VALUE_BYTES[self.dtype] * size

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        return values_to_bytes(check_vector(payload, shared), self.dtype)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        return values_from_bytes(data, shared.size, self.dtype, "a dense payload")

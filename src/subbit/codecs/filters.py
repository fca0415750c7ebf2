"""Sets of positions as probabilistic filters: the receiver gets every position that was sent, plus false positives.

DeltaMask sends its flips as a 4-wise binary fuse filter in a PNG. A filter with b bits per fingerprint turns a zero
into a one with probability 2^-b; at 8 bits and 1% of flips that is 0.39 false flips per true one. From 1% up an exact
code of the same set is smaller.

    payload = empty, if there are no keys, else
              number of keys (varint), number of the attempt (6 bits) and container (2 bits), slots in their container

The receiver derives all lengths from the number of keys, and the seed from the shared key and the attempt.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from subbit.codecs.codec import Bits, Codec, Kind, Shared, register_codec
from subbit.codecs.deflated import check_container, unwrap, wrap
from subbit.codecs.fuse import build_fuse, fuse_shape, query_fuse, seed_counter
from subbit.codecs.hashing import MAXIMUM_ATTEMPTS, seed_of_attempt
from subbit.codecs.lane import build_lane, lane_seed, lane_shape, query_lane
from subbit.codecs.packed import Positions, byte_count, positions_of_bits
from subbit.codecs.peeling import Fingerprints
from subbit.codecs.varint import read_varint, write_varint
from subbit.codecs.xor_filter import build_xor, query_xor, xor_block_length, xor_seed
from subbit.core.errors import ConfigError, PayloadError

FINGERPRINT_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype("<u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


class FingerprintFilter(Codec[Bits]):
    """Base class of the filters that store a fingerprint per slot. Subclasses add the kernels."""

    kind: ClassVar[Kind] = Kind.BITS
    exact: ClassVar[bool] = False
    bits: int
    container: str

    def __post_init__(self) -> None:
        if self.bits not in FINGERPRINT_TYPES:
            raise ConfigError(f"{self.name}: bits = {self.bits!r}; a fingerprint has 8, 16 or 32 bits")
        check_container(self.container)

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        positions = positions_of_bits(payload, shared.size)
        if positions.size == 0:
            return b""
        attempt, fingerprints = self.build(positions, shared.key)
        content = fingerprints.astype(FINGERPRINT_TYPES[self.bits], copy=False).tobytes()
        number, wrapped = wrap(content, self.container)
        return write_varint(positions.size) + bytes([number * MAXIMUM_ATTEMPTS + attempt]) + wrapped

    def decode(self, data: bytes, shared: Shared) -> Bits:
        if not data:
            return np.zeros(byte_count(shared.size), np.uint8)
        key_count, offset = read_varint(data, 0, shared.size, "number of keys")
        if key_count == 0 or offset == len(data):
            raise PayloadError(f"a filter of {key_count} keys that ends after its number of keys", cause="truncated")
        number, attempt = divmod(data[offset], MAXIMUM_ATTEMPTS)
        wire_type = FINGERPRINT_TYPES[self.bits]
        length = self.slot_count(key_count, attempt) * wire_type.itemsize
        content = unwrap(number, data[offset + 1 :], length, self.container)
        fingerprints = np.frombuffer(content, wire_type).astype(wire_type.newbyteorder("="), copy=False)
        return self.query(fingerprints, key_count, attempt, shared)

    @abstractmethod
    def slot_count(self, key_count: int, attempt: int) -> int:
        """Number of slots of a filter with `key_count` keys that was built in this attempt."""

    @abstractmethod
    def build(self, positions: Positions, key: int) -> tuple[int, Fingerprints]:
        """Return the number of the successful attempt and the slots."""

    @abstractmethod
    def query(self, fingerprints: Fingerprints, key_count: int, attempt: int, shared: Shared) -> Bits:
        """The positions that the filter contains."""


@register_codec
@dataclass(frozen=True)
class BinaryFuse(FingerprintFilter):
    """Binary fuse filter (Graf & Lemire 2022). DeltaMask uses `bits=8, arity=4, container="png"`."""

    name: ClassVar[str] = "bfuse"
    number: ClassVar[int] = 30
    summary: ClassVar[str] = "binary fuse filter: 8.6 bits per one (4-wise, 8-bit), 1/256 of the zeros arrive as ones"

    bits: int = 8
    arity: int = 4
    container: str = "deflate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arity not in (3, 4):
            raise ConfigError(f"bfuse: arity = {self.arity!r}; a binary fuse filter is 3-wise or 4-wise")

    def slot_count(self, key_count: int, attempt: int) -> int:
        return fuse_shape(key_count, self.arity).slot_count

    def build(self, positions: Positions, key: int) -> tuple[int, Fingerprints]:
        return build_fuse(positions, key, self.arity, FINGERPRINT_TYPES[self.bits].newbyteorder("="))

    def query(self, fingerprints: Fingerprints, key_count: int, attempt: int, shared: Shared) -> Bits:
        seed = seed_of_attempt(seed_counter(shared.key), attempt)
        return query_fuse(fingerprints, seed, fuse_shape(key_count, self.arity), self.arity, shared.size)


@register_codec
@dataclass(frozen=True)
class XorFilter(FingerprintFilter):
    """Xor filter (Graf & Lemire 2020), the baseline in DeltaMask's figure 6b."""

    name: ClassVar[str] = "xor"
    number: ClassVar[int] = 31
    summary: ClassVar[str] = "Xor filter: 9.8 bits per one (8-bit), 1/256 of the zeros arrive as ones"

    bits: int = 8
    container: str = "deflate"

    def slot_count(self, key_count: int, attempt: int) -> int:
        return 3 * xor_block_length(key_count)

    def build(self, positions: Positions, key: int) -> tuple[int, Fingerprints]:
        return build_xor(positions, key, FINGERPRINT_TYPES[self.bits].newbyteorder("="))

    def query(self, fingerprints: Fingerprints, key_count: int, attempt: int, shared: Shared) -> Bits:
        return query_xor(fingerprints, xor_seed(shared.key, attempt), shared.size)


@register_codec
@dataclass(frozen=True)
class LaneFilter(FingerprintFilter):
    """The 8-bit filter of `subbit.codecs.lane`: as small as a 3-wise binary fuse filter and several times faster to
    read.
    """

    name: ClassVar[str] = "lane"
    number: ClassVar[int] = 33
    summary: ClassVar[str] = "binary fuse filter that answers for eight places at once: 9 bits per one, rate 1/256"

    bits: int = field(default=8, init=False)
    container: str = "deflate"

    def slot_count(self, key_count: int, attempt: int) -> int:
        return lane_shape(key_count, attempt).slot_count

    def build(self, positions: Positions, key: int) -> tuple[int, Fingerprints]:
        return build_lane(positions, key)

    def query(self, fingerprints: Fingerprints, key_count: int, attempt: int, shared: Shared) -> Bits:
        return query_lane(fingerprints, lane_seed(shared.key, attempt), lane_shape(key_count, attempt), shared.size)

"""References for the codecs: constriction, zlib, lzma, and the C code of pyfusefilter called in bulk.

constriction and pyfusefilter are development dependencies, so they are imported only where they are used.
"""

from __future__ import annotations

import ctypes
import lzma
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.bench.measure import BUILDS, best_seconds, mean_build
from subbit.codecs import Bits, Shared
from subbit.codecs.packed import Positions, byte_count, count_ones, pack_bits, unpack_bits
from subbit.core.errors import ConfigError

COUNT_BYTES = 4
NEAREST_TO_CERTAIN = 2.0**-23
"""constriction does not accept probabilities of 0 or 1."""


def check_references() -> None:
    for name in ("constriction", "pyfusefilter"):
        if find_spec(name) is None:
            raise ConfigError(f"the benchmark compares with {name}: pip install 'subbit[dev]'")


class Constriction:
    """Range coder of constriction (Bamler 2022) with the rate of ones, which is sent in four bytes.

    Its interface takes int32 values; converting packed bits to them is part of its time here.
    """

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        ones = count_ones(payload)
        values = unpack_bits(payload, shared.size).astype(np.int32)
        words = encode_constriction(values, np.array(clipped(ones / shared.size)))
        return ones.to_bytes(COUNT_BYTES, "little") + words.tobytes()

    def decode(self, data: bytes, shared: Shared) -> Bits:
        ones = int.from_bytes(data[:COUNT_BYTES], "little")
        words = np.frombuffer(data, np.uint32, offset=COUNT_BYTES)
        return pack_bits(decode_constriction(words, np.array(clipped(ones / shared.size)), shared.size))


class Zlib:
    def encode(self, payload: Bits, shared: Shared) -> bytes:
        return zlib.compress(payload.tobytes(), 6)

    def decode(self, data: bytes, shared: Shared) -> Bits:
        return np.frombuffer(zlib.decompress(data), np.uint8)


class Lzma:
    def encode(self, payload: Bits, shared: Shared) -> bytes:
        return lzma.compress(payload.tobytes(), preset=6)

    def decode(self, data: bytes, shared: Shared) -> Bits:
        return np.frombuffer(lzma.decompress(data), np.uint8)


def clipped(probabilities: Any) -> Any:
    return np.clip(probabilities, NEAREST_TO_CERTAIN, 1 - NEAREST_TO_CERTAIN)


def encode_constriction(values: NDArray[np.int32], probability: NDArray[np.float64]) -> NDArray[np.uint32]:
    """`probability` of a one: a single one for all values, or one per value."""
    import constriction

    model, encoder = constriction.stream.model.Bernoulli, constriction.stream.queue.RangeEncoder()
    if probability.ndim:
        encoder.encode(values, model(perfect=False), probability)
    else:
        encoder.encode(values, model(float(probability), perfect=False))
    words: NDArray[np.uint32] = encoder.get_compressed()
    return words


def decode_constriction(words: NDArray[np.uint32], probability: NDArray[np.float64], size: int) -> NDArray[np.int32]:
    import constriction

    model, decoder = constriction.stream.model.Bernoulli, constriction.stream.queue.RangeDecoder(words)
    if probability.ndim:
        values: NDArray[np.int32] = decoder.decode(model(perfect=False), probability)
    else:
        values = decoder.decode(model(float(probability), perfect=False), size)
    return values


@dataclass(frozen=True)
class FuseReference:
    build_seconds: float
    query_seconds: float
    answers: Bits


def measure_c_fuse(positions: Positions, size: int) -> FuseReference:
    """The 3-wise 8-bit filter of FastFilter's C header, built by one call and queried for every position by a compiled
    loop.

    The library has no bulk query. But the `binary_fuse8_contain` compiled by cffi is a C function with an address, and
    a compiled loop around that address comes closest to one: one call per position without any Python.
    """
    from pyfusefilter._xorfilter import ffi, lib

    fuse, keys = ffi.new("binary_fuse8_t *"), positions.astype(np.uint64)
    if not lib.binary_fuse8_allocate(keys.size, fuse):
        raise MemoryError(f"no memory for a filter of {keys.size} keys")
    try:
        # Its first seed is fixed, so other keys replace other seeds. The last build is queried.
        shifted = [ffi.from_buffer("uint64_t[]", keys + np.uint64(seed * size)) for seed in range(BUILDS)]
        build_seconds = mean_build(lambda seed: lib.binary_fuse8_populate(shifted[seed], keys.size, fuse))
        # It writes only the slots that it uses and assumes that the others are zero.
        ffi.buffer(fuse.Fingerprints, fuse.ArrayLength)[:] = bytes(fuse.ArrayLength)
        if not lib.binary_fuse8_populate(shifted[0], keys.size, fuse):
            raise RuntimeError("the C filter was not built")
        answers = np.empty(byte_count(size), np.uint8)
        kernel = _query_kernel(int(ffi.cast("uintptr_t", ffi.addressof(lib, "binary_fuse8_contain"))))
        address = np.uint64(int(ffi.cast("uintptr_t", fuse)))
        query_seconds, _ = best_seconds(lambda: kernel(address, answers))
    finally:
        lib.binary_fuse8_free(fuse)
    if size % 8:
        answers[-1] &= np.uint8((1 << size % 8) - 1)
    return FuseReference(build_seconds, query_seconds, answers)


def _query_kernel(contain_address: int) -> Any:
    contain = ctypes.CFUNCTYPE(ctypes.c_uint8, ctypes.c_uint64, ctypes.c_uint64)(contain_address)

    def query(fuse: np.uint64, out: Bits) -> None:
        for byte in range(out.size):
            packed = np.uint64(0)
            for bit in range(8):
                packed |= np.uint64(contain(np.uint64(8 * byte + bit), fuse)) << np.uint64(bit)
            out[byte] = packed

    return numba.njit(query)

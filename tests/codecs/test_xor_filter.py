"""Xor filters: the bytes of the C header, and the rates."""

from __future__ import annotations

import numpy as np
import pytest
from pyfusefilter._xorfilter import ffi, lib
from test_fuse import TYPES, random_positions

from subbit.codecs import xor_filter
from subbit.codecs.packed import unpack_bits
from subbit.codecs.peeling import Fingerprints
from subbit.codecs.xor_filter import build_xor, query_xor, xor_block_length, xor_seed
from subbit.core.errors import PayloadError


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("count", [1, 2, 10, 100, 1_000, 100_000])
def test_filter_has_the_bytes_of_the_c_header(count: int, bits: int) -> None:
    positions = random_positions(count, 11 * count + 7, key=count)
    reference = ffi.new(f"xor{bits}_t *")
    assert getattr(lib, f"xor{bits}_allocate")(count, reference)
    try:
        length = 3 * reference.blockLength * bits // 8
        ffi.memmove(reference.fingerprints, bytes(length), length)
        keys = positions.astype(np.uint64)
        assert getattr(lib, f"xor{bits}_populate")(ffi.from_buffer("uint64_t[]", keys), count, reference)
        expected = bytes(ffi.buffer(reference.fingerprints, length))
        seed, block_length = reference.seed, reference.blockLength
    finally:
        getattr(lib, f"xor{bits}_free")(reference)

    attempt, fingerprints = build_xor(positions, 0, TYPES[bits])
    assert xor_block_length(count) == block_length
    assert int(xor_seed(0, attempt)) == seed
    assert fingerprints.tobytes() == expected


def test_length_by_hand() -> None:
    """1000 keys: 32 + 1230 = 1262 slots, thirds of 420."""
    assert xor_block_length(1000) == 420


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_every_key_is_found_and_2_to_the_minus_bits_of_the_others(bits: int) -> None:
    """False positives are binomial: within six standard deviations of (size - count) / 2^bits."""
    size, count, key = 300_005, 3_000, 4
    positions = random_positions(count, size)
    attempt, fingerprints = build_xor(positions, key, TYPES[bits])
    found = unpack_bits(query_xor(fingerprints, xor_seed(key, attempt), size), size)
    assert found[positions].all()
    expected = (size - count) / 2**bits
    assert abs(int(found.sum()) - count - expected) <= 6 * max(1.0, expected**0.5)


def test_query_answers_as_the_c_header() -> None:
    positions = random_positions(200, 3_000)
    attempt, fingerprints = build_xor(positions, 9, TYPES[8])
    found = unpack_bits(query_xor(fingerprints, xor_seed(9, attempt), 3_000), 3_000)
    reference = ffi.new("xor8_t *", {"seed": int(xor_seed(9, attempt)), "blockLength": xor_block_length(200)})
    reference.fingerprints = ffi.from_buffer("uint8_t[]", fingerprints)
    assert found.tolist() == [lib.xor8_contain(place, reference) for place in range(3_000)]


def test_construction_that_never_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> Fingerprints | None:
        return None

    monkeypatch.setattr(xor_filter, "solve", failing)
    with pytest.raises(PayloadError, match="no Xor filter of 5 keys"):
        build_xor(random_positions(5, 100), 0, TYPES[8])

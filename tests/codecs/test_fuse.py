"""Binary fuse filters: the bytes of the C header, the lengths of the paper, and peeling that admits defeat."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyfusefilter._xorfilter import ffi, lib

from subbit.codecs import fuse
from subbit.codecs.fuse import build_fuse, fuse_shape, query_fuse, seed_counter
from subbit.codecs.hashing import MAXIMUM_ATTEMPTS, fingerprint, multiply_high, murmur64, seed_of_attempt
from subbit.codecs.packed import unpack_bits
from subbit.codecs.peeling import Fingerprints, Peeler, Slots, peel_stack, solve
from subbit.core.errors import PayloadError
from subbit.core.randomness import numpy_generator

TYPES = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32)}


def random_positions(count: int, size: int, key: int = 0) -> NDArray[np.uint32]:
    return np.sort(numpy_generator(key).choice(size, count, replace=False)).astype(np.uint32)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 100, 1_000, 100_000])
def test_three_wise_filter_has_the_bytes_of_the_c_header(count: int, bits: int) -> None:
    positions = random_positions(count, 11 * count + 7, key=count)
    reference = ffi.new(f"binary_fuse{bits}_t *")
    assert getattr(lib, f"binary_fuse{bits}_allocate")(count, reference)
    try:
        length = reference.ArrayLength * bits // 8
        ffi.memmove(reference.Fingerprints, bytes(length), length)  # The header leaves slots of nobody as malloc did.
        keys = positions.astype(np.uint64)
        assert getattr(lib, f"binary_fuse{bits}_populate")(ffi.from_buffer("uint64_t[]", keys), count, reference)
        expected = bytes(ffi.buffer(reference.Fingerprints, length))
        seed, lengths = reference.Seed, (reference.SegmentLength, reference.SegmentCountLength, reference.ArrayLength)
    finally:
        getattr(lib, f"binary_fuse{bits}_free")(reference)

    attempt, fingerprints = build_fuse(positions, 0, 3, TYPES[bits])
    shape = fuse_shape(count, 3)
    assert (shape.segment_length, shape.start_length, shape.slot_count) == lengths
    assert int(seed_of_attempt(seed_counter(0), attempt)) == seed
    assert fingerprints.tobytes() == expected


def test_seeds_and_hash_are_those_of_the_c_header() -> None:
    counter = ffi.new("uint64_t *", 12345)
    for attempt in range(MAXIMUM_ATTEMPTS):
        assert int(seed_of_attempt(12345, attempt)) == lib.xor_rng_splitmix64(counter)
    for value in (0, 1, 0xDEADBEEF, (1 << 64) - 1):
        with np.errstate(over="ignore"):
            hashed = np.uint64(murmur64(np.uint64(value)))
        assert int(hashed) == lib.xor_murmur64(value)
        assert int(fingerprint(hashed)) == lib.xor_fingerprint(int(hashed))
        for factor in (1, 3, 83_968, (1 << 32) - 1):
            assert int(multiply_high(hashed, np.uint64(factor))) == int(hashed) * factor >> 64


@pytest.mark.parametrize(
    ("arity", "count", "segment_length", "slot_count"),
    [
        (3, 1, 4, 12),
        # log(10) / log(3.33) + 2.25 = 4.16: L = 16. Factor 0.875 + 0.25 * 6 = 2.375: 24 slots, 2 segments, at least 3.
        (3, 10, 16, 48),
        # log(1e6) / log(3.33) + 2.25 = 13.73: L = 8192. 1,125,000 slots are 137.3 segments: 138.
        (3, 1_000_000, 8192, 138 * 8192),
        # log(1) = 0 would make the exponent -1: a segment has at least one slot, a key four segments.
        (4, 1, 1, 4),
        # log(100) / log(2.91) - 0.5 = 3.81: L = 8. Factor 0.77 + 0.305 * 5.778 / 2 = 1.6512: 165 slots, 21 segments.
        (4, 100, 8, 168),
        # log(1e6) / log(2.91) - 0.5 = 12.43: L = 4096. 1,075,000 slots are 262.5 segments: 263.
        (4, 1_000_000, 4096, 263 * 4096),
        # Segments stop growing at 2^18, where (2^31 keys) the formulas would say 2^20.
        (3, 1 << 31, 1 << 18, 9216 << 18),
    ],
)
def test_lengths_derived_by_hand(arity: int, count: int, segment_length: int, slot_count: int) -> None:
    shape = fuse_shape(count, arity)
    assert (shape.segment_length, shape.slot_count) == (segment_length, slot_count)
    assert shape.start_length == slot_count - (arity - 1) * segment_length


@pytest.mark.parametrize("arity", [3, 4])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_every_key_is_found_and_2_to_the_minus_bits_of_the_others(arity: int, bits: int) -> None:
    """False positives are binomial: within six standard deviations of (size - count) / 2^bits."""
    size, count, key = 400_003, 4_000, 99
    positions = random_positions(count, size, key=bits)
    attempt, fingerprints = build_fuse(positions, key, arity, TYPES[bits])
    packed = query_fuse(
        fingerprints, seed_of_attempt(seed_counter(key), attempt), fuse_shape(count, arity), arity, size
    )
    found = unpack_bits(packed, size)
    assert found[positions].all()
    expected = (size - count) / 2**bits
    assert abs(int(found.sum()) - count - expected) <= 6 * max(1.0, expected**0.5)


def test_four_wise_slots_are_those_of_the_formula() -> None:
    """Each key's XOR over slots computed in Python integers from the docstring's formula is its fingerprint."""
    count, key = 500, 5
    positions = random_positions(count, 10_000)
    attempt, fingerprints = build_fuse(positions, key, 4, TYPES[16])
    shape, seed = fuse_shape(count, 4), seed_of_attempt(seed_counter(key), attempt)
    for position in positions:
        hashed = lib.xor_mix_split(int(position), int(seed))
        start = hashed * shape.start_length >> 64
        value = int(fingerprints[start])
        for way in (1, 2, 3):
            offset = (hashed >> 18 * (3 - way)) % shape.segment_length
            value ^= int(fingerprints[(start + way * shape.segment_length) ^ offset])
        assert value == (hashed ^ hashed >> 32) % 65536


def test_peeling_by_hand() -> None:
    """Slots 0..4, keys {0, 1, 2} and {2, 3, 4}. Alone are 0, 1, 3, 4; the stack gives 4, so key 1 goes first, and
    its slot 2 then has one key, which is 0."""
    order, chosen = np.zeros(2, np.uint32), np.zeros(2, np.uint32)
    assert peel_stack(np.array([[0, 1, 2], [2, 3, 4]], np.uint32), 5, order, chosen) == 2
    assert order.tolist() == [1, 0]
    assert chosen.tolist() == [4, 2]


def test_equations_that_hang_together_are_not_peeled() -> None:
    order, chosen = np.zeros(2, np.uint32), np.zeros(2, np.uint32)
    assert peel_stack(np.array([[0, 1, 2], [0, 1, 2]], np.uint32), 3, order, chosen) == 0


def test_construction_goes_on_to_the_next_seed_and_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = random_positions(50, 1000)
    tried = []

    def failing(slots: Slots, wanted: Fingerprints, slot_count: int, peel: Peeler) -> Fingerprints | None:
        tried.append(slots)
        return None if len(tried) <= failures else solve(slots, wanted, slot_count, peel)

    monkeypatch.setattr(fuse, "solve", failing)
    failures = 2
    attempt, fingerprints = build_fuse(positions, 3, 3, TYPES[8])
    assert attempt >= 2
    assert not np.array_equal(tried[0], tried[1])
    seed = seed_of_attempt(seed_counter(3), attempt)
    assert unpack_bits(query_fuse(fingerprints, seed, fuse_shape(50, 3), 3, 1000), 1000)[positions].all()
    failures = 1000
    with pytest.raises(PayloadError, match="no binary fuse filter of 50 keys"):
        build_fuse(positions, 3, 3, TYPES[8])

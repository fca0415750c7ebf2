"""The lane filter: equations lane by lane, keys in every arrangement, and the slots that a further attempt adds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyfusefilter._xorfilter import lib
from test_fuse import random_positions

from subbit.codecs import lane
from subbit.codecs.fuse import fuse_shape
from subbit.codecs.lane import LaneShape, build_lane, lane_seed, lane_shape, query_lane
from subbit.codecs.packed import unpack_bits
from subbit.codecs.peeling import Fingerprints, Peeler, Slots, solve
from subbit.core.errors import PayloadError


def found_by(positions: NDArray[np.uint32], key: int, size: int) -> NDArray[np.bool_]:
    attempt, fingerprints = build_lane(positions, key)
    packed = query_lane(fingerprints, lane_seed(key, attempt), lane_shape(positions.size, attempt), size)
    return unpack_bits(packed, size)


def test_the_formula_in_python_integers() -> None:
    """Every answer of the kernel, keys and others, from the equations of the module's docstring."""
    size, count, key = 4_001, 150, 3
    positions = random_positions(count, size)
    attempt, fingerprints = build_lane(positions, key)
    shape, seed, stored = lane_shape(count, attempt), int(lane_seed(key, attempt)), fingerprints.tobytes()
    segment = shape.segment_words
    answers = []
    for place in range(size):
        hashed = lib.xor_mix_split(place >> 3, seed)
        start = hashed * shape.start_words >> 64
        words = (start, (start + segment) ^ (hashed >> 18) % segment, (start + 2 * segment) ^ hashed % segment)
        turned = hashed >> 32 | (hashed % 2**32) << 32
        value = (hashed % 2**32 * 0x9E3779B1 ^ turned) >> 8 * (place & 7) & 255
        for word, shift in zip(words, (36, 39, 42), strict=True):
            value ^= stored[8 * word + (place + (hashed >> shift)) % 8]
        answers.append(value == 0)
    packed = query_lane(fingerprints, lane_seed(key, attempt), shape, size)
    assert unpack_bits(packed, size).tolist() == answers
    assert all(answers[position] for position in positions)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100, 1_000, 20_000])
@pytest.mark.parametrize("arrangement", ["sparse", "one lane", "half", "all", "full blocks far apart"])
def test_keys_in_every_arrangement(count: int, arrangement: str) -> None:
    """Full blocks are the hardest: all eight lanes of a block hang on the same three words."""
    size = 200 * count + 8
    positions = {
        "sparse": random_positions(count, size),
        "one lane": 8 * random_positions(count, 20 * count),
        "half": random_positions(count, 2 * count),
        "all": np.arange(count, dtype=np.uint32),
        "full blocks far apart": (np.arange(count) // 8 * 96 + np.arange(count) % 8).astype(np.uint32),
    }[arrangement]
    assert found_by(positions, 1, size)[positions].all()


@pytest.mark.parametrize(("count", "size"), [(500, 800_000), (40_000, 800_003), (200_000, 800_000)])
def test_one_of_256_others_is_found_in_every_lane(count: int, size: int) -> None:
    """Binomial in each lane: within five standard deviations of (others in the lane) / 256."""
    positions = random_positions(count, size)
    found = found_by(positions, 5, size)
    assert found[positions].all()
    found[positions] = False
    others = np.ones(size, np.bool_)
    others[positions] = False
    for number in range(8):
        expected = int(others[number::8].sum()) / 256
        assert abs(int(found[number::8].sum()) - expected) <= 5 * expected**0.5


def test_lengths() -> None:
    """10,000 keys: log(10,000) / log(3.33) + 2.25 = 9.91, 512 bytes or 64 words a segment, and 0.875 + 0.25 * 6 / 4 =
    1.25 slots per key, 12,500, are 24.4 segments: 25, of which a key starts in 23. As many bytes as the 3-wise binary
    fuse filter has; attempt 16 has a quarter more: 16,000 are 31.25 segments, 32."""
    assert lane_shape(10_000, 0) == LaneShape(64, 23 * 64, 25 * 512)
    assert lane_shape(10_000, 16) == LaneShape(64, 30 * 64, 32 * 512)
    for count in (100, 12_345, 700_000):
        assert lane_shape(count, 0).slot_count == fuse_shape(count, 3).slot_count


def test_first_attempt_works_for_sparse_keys() -> None:
    """A load of 1.2 slots per key is above the threshold of peeling, whatever the seed."""
    for key in range(10):
        assert build_lane(random_positions(30_000, 3_000_000), key)[0] == 0


def test_further_attempts_have_more_slots_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def failing(slots: Slots, wanted: Fingerprints, slot_count: int, peel: Peeler) -> Fingerprints | None:
        tried.append(slot_count)
        return None if len(tried) <= failures else solve(slots, wanted, slot_count, peel)

    monkeypatch.setattr(lane, "solve", failing)
    positions = random_positions(2_000, 50_000)
    failures = 6
    assert found_by(positions, 1, 50_000)[positions].all()
    assert tried == [lane_shape(2_000, attempt).slot_count for attempt in range(7)]
    assert tried[-1] > tried[0]
    failures = 1000
    with pytest.raises(PayloadError, match="no lane filter of 2000 keys"):
        build_lane(positions, 1)

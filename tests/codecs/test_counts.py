"""Counts: by hand, against the entropy, by law, on damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.codec import Counts, Shared
from subbit.codecs.counted import CountsCodec
from subbit.codecs.varint import write_varint
from subbit.core.errors import PayloadError

CODEC = CountsCodec()


def check_roundtrip(counts: Counts, shared: Shared) -> bytes:
    data = CODEC.encode(counts, shared)
    decoded = CODEC.decode(data, shared)
    assert decoded.total == counts.total
    assert decoded.values.dtype == np.uint16
    assert np.array_equal(decoded.values, counts.values)
    return data


def entropy_bytes(labels: np.ndarray) -> float:
    occurrences = np.unique(labels, return_counts=True)[1]
    return float(-(occurrences * np.log2(occurrences / labels.size)).sum() / 8)


def draw_counts(size: int, total: int, seed: int, spread: float = 1.0) -> Counts:
    generator = np.random.default_rng(seed)
    return Counts(
        total, generator.binomial(total, 1 / (1 + np.exp(-generator.normal(0, spread, size)))).astype(np.uint16)
    )


def moved(counts: Counts, total: int, seed: int) -> Counts:
    """Another broadcast near this one, out of another total."""
    generator = np.random.default_rng(seed)
    scaled = counts.values.astype(np.int64) * total // max(counts.total, 1) + generator.integers(
        -1, 2, counts.values.size
    )
    return Counts(total, scaled.clip(0, total).astype(np.uint16))


def test_one_value_by_hand() -> None:
    """Total 10 alone: varint(20). One table with one symbol: varint(0), symbol 9. Nothing is left open, so no
    stream."""
    assert check_roundtrip(Counts(10, np.full(1000, 9, np.uint16)), Shared(1000)) == bytes([20, 0, 9])


def test_stream_by_hand() -> None:
    """Values 0, 1 of total 1: varint(2), table of two symbols: varint(1), 0, step 0, frequency 2^15 - 1 as varint FF FF
    01. Backwards from 2^32: the 1 (start 2^15) gives (2^32 / 2^15) 2^16 + 2^15 = 2^33 + 2^15 in the second state, the 0
    gives 2^33 in the first. No state reached 2^15 2^32, so there are no words.
    """
    first, second = 1 << 33, (1 << 33) + (1 << 15)
    states = first.to_bytes(6, "little") + second.to_bytes(6, "little")
    assert (
        check_roundtrip(Counts(1, np.array([0, 1], np.uint16)), Shared(2))
        == bytes([2, 1, 0, 0, 0xFF, 0xFF, 1]) + states
    )


def test_the_reference_again_costs_its_tables_only() -> None:
    counts = draw_counts(5000, 10, seed=1)
    assert len(check_roundtrip(counts, Shared(5000, reference=counts))) == 1 + 2 * 11


@settings(deadline=None, max_examples=100)
@given(
    size=st.integers(0, 2000),
    total=st.sampled_from([0, 1, 2, 10, 30, 300, 65535]),
    old_total=st.sampled_from([None, 0, 1, 10, 300, 65535]),
    seed=st.integers(0, 999),
    spread=st.sampled_from([0, 1, 10]),
)
def test_roundtrip(size: int, total: int, old_total: int | None, seed: int, spread: float) -> None:
    counts = draw_counts(size, total, seed, spread)
    alone = check_roundtrip(counts, Shared(size))
    if old_total is not None:
        shared = Shared(size, reference=moved(counts, old_total, seed))
        assert len(check_roundtrip(counts, shared)) <= len(alone) + 2


@pytest.mark.parametrize("size", [0, 1, 5])
def test_degenerate(size: int) -> None:
    assert len(check_roundtrip(Counts(0, np.zeros(size, np.uint16)), Shared(size))) == (3 if size else 1)
    check_roundtrip(Counts(65535, np.full(size, 65535, np.uint16)), Shared(size))


def test_every_value_of_the_largest_total() -> None:
    check_roundtrip(Counts(65535, np.arange(65536, dtype=np.uint16)), Shared(65536))


@pytest.mark.parametrize("total", [10, 30])
def test_reaches_the_entropy(total: int) -> None:
    old = draw_counts(200_000, total, seed=2, spread=2)
    new = moved(old, total, seed=3)
    alone = check_roundtrip(new, Shared(new.values.size))
    assert len(alone) <= 1.001 * entropy_bytes(new.values) + 12 + 6 * (total + 1)
    pairs = old.values.astype(np.int64) * 100 + new.values
    conditional = entropy_bytes(pairs) - entropy_bytes(old.values)
    against = check_roundtrip(new, Shared(new.values.size, reference=old))
    assert len(against) <= 1.002 * conditional + 12 + 6 * 3 * (total + 1)
    assert len(against) < 0.6 * len(alone)


def test_an_unrelated_reference_does_no_harm() -> None:
    counts, other = draw_counts(20_000, 10, seed=4), draw_counts(20_000, 10, seed=5)
    assert CODEC.encode(counts, Shared(20_000, reference=other)) == CODEC.encode(counts, Shared(20_000))


@settings(deadline=None, max_examples=40)
@given(size=st.integers(0, 300), against=st.booleans(), seed=st.integers(0, 999))
def test_damage(size: int, against: bool, seed: int) -> None:
    generator = np.random.default_rng(seed)
    counts = draw_counts(size, 12, seed)
    shared = Shared(size, limit=40, reference=moved(counts, 10, seed) if against else None)
    data = check_roundtrip(counts, shared)
    for tail in (b"\0", b"\xff", bytes(2), bytes(20)):
        with pytest.raises(PayloadError):
            CODEC.decode(data + tail, shared)
    damaged = [*[data[:length] for length in range(len(data))][:60], b"", b"\xff" * 30, bytes(30), generator.bytes(40)]
    for _ in range(60):
        flipped = bytearray(data)
        flipped[generator.integers(len(data))] ^= 1 << generator.integers(8)
        damaged.append(bytes(flipped))
    for wrong in damaged:
        try:
            decoded = CODEC.decode(wrong, shared)
        except PayloadError:
            continue
        assert decoded.total <= 40
        assert decoded.values.shape == (size,)
        assert not (decoded.values > decoded.total).any()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (write_varint(2 * 41), "at most"),
        (bytes([21, 0, 9]), "not here"),
        (bytes([20]), "ends inside"),
        (bytes([20, 0]), "ends inside"),
        (bytes([20, 0, 11]), "at most"),
        (bytes([20, 11]), "at most"),
        (bytes([20, 1, 9, 1]), "at most"),
        (bytes([20, 0, 9, 0]), "follow"),
        (bytes([20, 1, 8, 0, 0xFF, 0xFF, 3]), "at most"),
        (bytes([20, 1, 8, 0, 0]), "whole words"),
        (bytes([20, 1, 8, 0, 0]) + bytes(12), "below"),
        (bytes([20, 1, 8, 0, 0]) + b"\xff" * 12, "not the code"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        CODEC.decode(data, Shared(100, limit=40))


def test_counts_out_of_form_are_not_sent() -> None:
    good = np.zeros(4, np.uint16)
    wrong = [
        Counts(3, good[:3]),
        Counts(3, good + np.uint16(4)),
        Counts(41, good),
        Counts(-1, good),
        Counts(3, np.zeros(4)),
    ]
    for counts in wrong:
        with pytest.raises(PayloadError):
            CODEC.encode(counts, Shared(4, limit=40))
    with pytest.raises(PayloadError):
        CODEC.encode(Counts(3, good), Shared(4, reference=Counts(3, good[:3])))

"""The range coder: by hand, against big integers, against constriction, by law, on damaged bytes."""

from __future__ import annotations

from collections.abc import Callable

import constriction
import numpy as np
import pytest
from exact_laws import booleans, bound_bytes, check_hostile, check_roundtrip, draw_booleans
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.codec import Shared
from subbit.codecs.packed import bits_of_positions, pack_bits
from subbit.codecs.range_coder import CERTAINTY, LARGEST_CHUNK, decode_bits, decode_rare_bits, encode_bits
from subbit.codecs.ranged import Range, RangePrior
from subbit.core.errors import ConfigError, PayloadError

every_form = pytest.mark.parametrize("codec", [Range(), Range(adaptive=True)], ids=["static", "adaptive"])


def test_by_hand() -> None:
    """Bits 1, 0 at rate 1/2: width 2^64 - 1 is split at (2^40 - 1) 2^23 = 2^63 - 2^23; the 1 takes [2^63 - 2^23, 2^64 -
    1). Its width >> 24 is 2^39, so the 0 takes [2^63 - 2^23, 2^63 + 2^62 - 2^23). The roundest number in there is 2^63:
    bytes 80 00... The header is varint(2 * 1 + 0).
    """
    assert Range().encode(pack_bits([1, 0]), Shared(2)) == b"\x02\x80"


class BigIntegerCoder:
    """The module docstring in integers of any length: `low` keeps all bits, so that carries need no care."""

    def __init__(self) -> None:
        self.low, self.width, self.words = 0, (1 << 64) - 1, 0

    def split(self, zero: int) -> int:
        return (self.width >> 24) * zero

    def encode(self, bit: int, zero: int) -> None:
        split = self.split(zero)
        self.low += split * bit
        self.width = self.width - split if bit else split
        while self.width < 1 << 48:
            self.low, self.width, self.words = self.low << 16, self.width << 16, self.words + 1

    def stream(self) -> bytes:
        if (self.low, self.width) == (0, (1 << 64) - 1):
            return b""
        for length in range(1, 9):
            unit = 1 << 64 - 8 * length
            number = (self.low + unit - 1) // unit
            if (number + 1) * unit <= self.low + self.width:
                return number.to_bytes(length + 2 * self.words, "big")
        raise AssertionError


def model_of(zeros: np.ndarray):
    return lambda start, stop, bits: zeros[start:stop]


@settings(deadline=None, max_examples=60)
@given(size=st.integers(0, 400), seed=st.integers(0, 9999), extreme=st.booleans(), follow=st.floats(0, 1))
def test_equals_big_integers(size: int, seed: int, extreme: bool, follow: float) -> None:
    generator = np.random.default_rng(seed)
    zeros = generator.integers(1, CERTAINTY, size, dtype=np.uint32)
    if extreme:
        zeros = generator.choice(np.array([1, 2, CERTAINTY - 2, CERTAINTY - 1], np.uint32), size)
    likely = zeros < CERTAINTY // 2
    bits = np.where(generator.random(size) < follow, likely, ~likely)
    oracle = BigIntegerCoder()
    for bit, zero in zip(bits.tolist(), zeros.tolist(), strict=True):
        oracle.encode(bit, zero)
    data = encode_bits(pack_bits(bits), size, model_of(zeros))
    assert data == oracle.stream()
    assert np.array_equal(decode_bits(data, size, model_of(zeros)), pack_bits(bits))


@pytest.mark.parametrize("last", [0, 1])
def test_a_carry_runs_through_many_words(last: int) -> None:
    """Bits that keep 2^63 inside the interval make low 7FFF FFFF FFFF...; a last 1 pushes it over, through all the
    words."""
    zeros = np.full(300, CERTAINTY // 3, dtype=np.uint32)
    oracle, bits = BigIntegerCoder(), []
    for zero in zeros.tolist():
        target = 1 << 63 + 16 * oracle.words
        bits.append(int(oracle.low + oracle.split(zero) <= target) if len(bits) < 299 else last)
        oracle.encode(bits[-1], zero)
    data = encode_bits(pack_bits(bits), 300, model_of(zeros))
    assert data == oracle.stream()
    assert np.array_equal(decode_bits(data, 300, model_of(zeros)), pack_bits(bits))


@every_form
@settings(deadline=None, max_examples=100)
@given(values=booleans)
def test_roundtrip(codec: Range, values: np.ndarray) -> None:
    check_roundtrip(codec, values, Shared(values.size))


@every_form
@settings(deadline=None, max_examples=25)
@given(values=booleans)
def test_damage(codec: Range, values: np.ndarray) -> None:
    data = check_roundtrip(codec, values, Shared(values.size))
    # One bit of the header says which form it is: a flip of it may be a good payload of the other one.
    check_hostile(codec, data, Shared(values.size), canonical=False)


@every_form
@pytest.mark.parametrize("size", [1, 8, 1000])
def test_nothing_and_everything_cost_the_header(codec: Range, size: int) -> None:
    assert len(check_roundtrip(codec, np.zeros(size, np.bool_), Shared(size))) == 1
    assert len(check_roundtrip(codec, np.ones(size, np.bool_), Shared(size))) <= 2


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.5, 0.95])
def test_static_reaches_the_bound(rate: float) -> None:
    values = draw_booleans(1_000_000, rate, seed=3, clustered=False)
    data = check_roundtrip(Range(), values, Shared(values.size))
    bound = bound_bytes(int(values.sum()), values.size)
    assert bound <= len(data) <= 1.0001 * bound + 8


def test_adaptive_follows_a_changing_rate() -> None:
    """Half a million places at 1% and as many at 10%: two bounds instead of one for the mixture."""
    slow, fast = (draw_booleans(500_000, rate, seed=4, clustered=False) for rate in (0.01, 0.1))
    values = np.concatenate([slow, fast])
    data = check_roundtrip(Range(adaptive=True), values, Shared(values.size))
    bound = sum(bound_bytes(int(part.sum()), part.size) for part in (slow, fast))
    assert len(data) < 1.02 * bound
    assert len(Range().encode(pack_bits(values), Shared(values.size))) > 1.05 * bound


def prior_and_bits(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    probabilities = 1 / (1 + np.exp(-generator.normal(0, 3, size)))
    thresholds = np.clip(probabilities * 2**32, 1, 2**32 - 1).astype(np.uint32)
    return thresholds, generator.random(size) < probabilities


@settings(deadline=None, max_examples=60)
@given(size=st.integers(0, 2000), seed=st.integers(0, 999), extreme=st.sampled_from([None, 0, 1, 2**32 - 1]))
def test_prior_roundtrip(size: int, seed: int, extreme: int | None) -> None:
    """Also where the prior rules out what came: such bits are long, not lost."""
    thresholds, values = prior_and_bits(size, seed)
    if extreme is not None:
        thresholds[:] = extreme
    check_roundtrip(RangePrior(), values, Shared(size, thresholds=thresholds))


@settings(deadline=None, max_examples=25)
@given(size=st.integers(0, 500), seed=st.integers(0, 999))
def test_prior_damage(size: int, seed: int) -> None:
    thresholds, values = prior_and_bits(size, seed)
    shared = Shared(size, thresholds=thresholds)
    check_hostile(RangePrior(), check_roundtrip(RangePrior(), values, shared), shared)


def test_prior_is_as_small_as_constriction() -> None:
    thresholds, values = prior_and_bits(300_000, 5)
    data = check_roundtrip(RangePrior(), values, Shared(values.size, thresholds=thresholds))
    encoder = constriction.stream.queue.RangeEncoder()
    probabilities = np.clip(thresholds / 2**32, 1e-7, 1 - 1e-7)
    encoder.encode(values.astype(np.int32), constriction.stream.model.Bernoulli(perfect=False), probabilities)
    assert len(data) <= 1.0005 * encoder.get_compressed().nbytes


def test_prior_needs_thresholds() -> None:
    with pytest.raises(ConfigError, match="threshold"):
        RangePrior().encode(np.zeros(1, np.uint8), Shared(8))
    with pytest.raises(ConfigError, match="threshold"):
        RangePrior().decode(b"", Shared(8, thresholds=np.zeros(7, np.uint32)))


def test_chunks_do_not_show() -> None:
    """More places than the largest chunk, and a size that ends inside a byte."""
    size = 3 * LARGEST_CHUNK + 5
    check_roundtrip(Range(), draw_booleans(size, 0.3, seed=1, clustered=True), Shared(size))


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01", b"\x20\x00", b"\x22", b"\x02", b"\x02\x80\x00", b"\x02\x80" + bytes(99)]
)
def test_refusals(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Range().decode(data, Shared(16))


@settings(deadline=None, max_examples=60)
@given(
    size=st.one_of(st.integers(1, 300), st.sampled_from([16384, 40001])),
    density=st.sampled_from([0.001, 0.05, 0.5]),
    seed=st.integers(0, 99),
    damage=st.booleans(),
)
def test_the_decoder_of_rare_ones_reads_what_the_other_reads(
    size: int, density: float, seed: int, damage: bool
) -> None:
    """And refuses what the other refuses."""
    generator = np.random.default_rng([size, seed])
    bits = pack_bits(generator.random(size) < density)
    contexts = generator.integers(0, 3, size).astype(np.uint8)
    table = generator.integers(1, CERTAINTY, 3).astype(np.uint32)
    data = encode_bits(bits, size, lambda start, stop, _: table[contexts[start:stop]])
    if damage:
        changed = bytearray(data)
        changed[generator.integers(0, len(data))] ^= 1 << generator.integers(0, 8)
        data = bytes(changed)

    def outcome(decode: Callable[[], np.ndarray]) -> list[int] | str:
        try:
            return decode().tolist()
        except PayloadError as error:
            return str(error)

    slow = outcome(lambda: decode_bits(data, size, lambda start, stop, _: table[contexts[start:stop]]))
    fast = outcome(lambda: decode_rare_bits(data, size, lambda start, stop, _: (table, contexts[start:stop])))
    assert slow == fast
    assert damage or slow == bits.tolist()


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("ones", [1, 999, 1250, 1251, 10_000])
def test_few_and_many_ones_come_back(ones: int, adaptive: bool) -> None:
    """On both sides of the rate at which the decoder changes."""
    places = np.random.default_rng(ones).permutation(20_000)[:ones]
    bits = bits_of_positions(places, 20_000)
    codec = Range(adaptive=adaptive)
    assert np.array_equal(codec.decode(codec.encode(bits, Shared(20_000)), Shared(20_000)), bits)

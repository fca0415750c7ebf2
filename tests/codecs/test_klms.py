from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from subbit.codecs.codec import Shared, Vector
from subbit.codecs.klms import LARGEST_STEP_BITS, Klms, _cut, _slopes
from subbit.codecs.packed import unpack_bits
from subbit.core.errors import ConfigError, PayloadError


def thresholds_of(prior: NDArray[np.float64]) -> NDArray[np.uint32]:
    return np.clip(np.round(prior * 2**32), 0, 2**32 - 1).astype(np.uint32)


def sample(codec: Klms, posterior: Vector, prior: NDArray[np.float64], key: int = 1) -> NDArray[np.bool_]:
    shared = Shared(size=posterior.size, key=key, thresholds=thresholds_of(prior))
    return unpack_bits(codec.decode(codec.encode(posterior, shared), shared), posterior.size)


@given(st.integers(0, 300), st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=40)
def test_any_posterior_and_any_prior_even_certain_ones(size: int, key: int) -> None:
    generator = np.random.default_rng(key % 1000)
    corners = np.array([0.0, 1.0, 0.5, 1e-9, 1 - 1e-7])
    shared = Shared(size=size, key=key, thresholds=thresholds_of(generator.choice(corners, size)))
    codec = Klms(candidate_bits=3)
    posterior = generator.choice(corners, size).astype(np.float32)
    assert codec.decode(codec.encode(posterior, shared), shared).size == (size + 7) // 8


def test_the_share_of_ones_is_the_posterior() -> None:
    """Prior 1/2, posterior 3/4. Mean of 20,000 places: standard deviation sqrt(3/16 / 20000) = 0.003, and the
    candidates are few enough to leave a share of 0.01 or so with the prior."""
    drawn = sample(Klms(), np.full(20_000, 0.75, np.float32), np.full(20_000, 0.5))
    assert drawn.mean() == pytest.approx(0.75, abs=0.02)


def test_samples_follow_the_posterior_not_the_prior() -> None:
    """Regression of samples on the posterior, both less the prior: 1 for true samples, 0 for samples of the prior. With
    2^8 candidates for blocks of 3 bits some of the weight stays with the prior."""
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, 40_000)
    prior = 1 / (1 + np.exp(-logits))
    posterior = 1 / (1 + np.exp(-logits - generator.normal(0, 1, 40_000)))
    drift = posterior - prior
    drawn = sample(Klms(), posterior.astype(np.float32), prior)
    assert np.dot(drift, drawn - prior) / np.dot(drift, drift) == pytest.approx(0.95, abs=0.06)


def test_the_cost_is_a_small_multiple_of_the_divergence() -> None:
    """ "dense N(0, 0.1)": 0.0011 bits of divergence a place; 8 bits and a length for almost 3 of them. One bit a place
    is the mask."""
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, 100_000)
    prior = 1 / (1 + np.exp(-logits))
    posterior = (1 / (1 + np.exp(-logits - generator.normal(0, 0.1, 100_000)))).astype(np.float32)
    divergence = _slopes(posterior.astype(np.float64), thresholds_of(prior))[1].sum()
    data = Klms().encode(posterior, Shared(size=100_000, thresholds=thresholds_of(prior)))
    assert divergence < 8 * len(data) < 6 * divergence


def test_without_divergence_the_sample_is_nearly_free() -> None:
    prior = np.full(100_000, 0.25)
    data = Klms().encode(prior.astype(np.float32), Shared(size=100_000, thresholds=thresholds_of(prior)))
    assert len(data) < 20


def test_blocks_stay_within_the_rate_unless_one_step_exceeds_it() -> None:
    """Divergences 1 1 2 | 3 | 5 | 0 3 | 0.5 at a rate of 4; and no block is longer than 256 steps."""
    lengths = np.zeros(8, np.uint16)
    count = _cut(np.array([1, 1, 2, 3, 5, 0, 3.5, 0.6]), 4.0, lengths)
    assert lengths[:count].tolist() == [3, 1, 1, 2, 1]
    lengths = np.zeros(300, np.uint16)
    assert lengths[: _cut(np.zeros(300), 4.0, lengths)].tolist() == [256, 44]


def test_divergence_by_hand() -> None:
    """KL(3/4 || 1/2) = 3/4 log2 3/2 + 1/4 log2 1/2 = 0.1887 bits; slope logit 3/4 - logit 1/2 = log 3."""
    slopes, divergence = _slopes(np.array([0.75]), thresholds_of(np.array([0.5])))
    assert slopes == pytest.approx([np.log(3)], rel=1e-6)
    assert divergence == pytest.approx([0.1887], abs=1e-4)


def test_a_packed_mask_is_a_posterior_that_is_sure() -> None:
    """Prior 1/2 and a step of one place: one bit of divergence each, three places in a block, 256 candidates of 8
    patterns. One of them fits unless all 256 miss, with chance (7/8)^256 = 1e-15."""
    mask = np.packbits(np.random.default_rng(0).random(200) < 0.3, bitorder="little")
    shared = Shared(size=200, key=3, thresholds=np.full(200, 1 << 31, np.uint32))
    assert np.array_equal(Klms().decode(Klms().encode(mask, shared), shared), mask)


def test_bad_posteriors_are_refused() -> None:
    shared = Shared(size=3, thresholds=np.full(3, 1 << 31, np.uint32))
    for bad in ([0.5, 0.5], [0.5, np.nan, 0.5], [0.5, 1.5, 0.5], [-0.1, 0.5, 0.5]):
        with pytest.raises(PayloadError):
            Klms().encode(np.array(bad, np.float32), shared)


def test_hostile_bytes_are_refused() -> None:
    generator = np.random.default_rng(0)
    shared = Shared(size=500, thresholds=thresholds_of(generator.random(500)))
    data = Klms().encode(generator.random(500).astype(np.float32), shared)
    forged = [data[:length] for length in range(len(data))]
    forged += [data + b"\0", bytes([LARGEST_STEP_BITS + 1]) + data[1:], bytes([data[0] + 1]) + data[1:], b"\0\xff" * 50]
    for bad in forged:
        with pytest.raises(PayloadError):
            Klms().decode(bad, shared)


def test_without_a_prior_it_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="prior"):
        Klms().decode(b"", Shared(size=3))


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"rate": np.inf}, {"candidate_bits": 0}, {"candidate_bits": 13}])
def test_bad_options(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Klms(**options)

"""The control variate: by hand, and against the mean of masks that it improves on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from subbit.aggregate import SignedCounts, TrimmedMean
from subbit.codecs.packed import pack_bits, unpack_bits
from subbit.codecs.sampler import sample_bits
from subbit.runtime.run import run_job
from subbit.wire.frame import HEADER_BYTES
from tests.problems import digits_problem, settings


def test_signed_counts_by_hand() -> None:
    """Two clients, four places. Client 0 had 1 1 0 0 and flips places 0 and 2: -1 0 +1 0. Client 1 had 1 0 0 0 and
    flips places 0 and 1: -1 +1 0 0. Means: -1, 1/2, 1/2, 0.
    """
    counts = SignedCounts(4)
    counts.add(pack_bits([1, 0, 1, 0]), pack_bits([1, 1, 0, 0]))
    counts.add(pack_bits([1, 1, 0, 0]), pack_bits([1, 0, 0, 0]))
    assert counts.mean().tolist() == [-1.0, 0.5, 0.5, 0.0]
    assert SignedCounts(2).mean().tolist() == [0.0, 0.0]
    assert SignedCounts(2).mean(0.2).tolist() == [0.0, 0.0]


@given(st.integers(1, 12), st.floats(0, 0.49), st.integers(0, 2**32))
def test_trimmed_signed_counts_are_the_trimmed_mean_of_the_changes(clients: int, trim: float, seed: int) -> None:
    """Counts know all that sorting would: the same as keeping every client's -1, 0 and +1."""
    generator = np.random.default_rng(seed)
    counts, kept = SignedCounts(40), TrimmedMean(40, trim)
    for _ in range(clients):
        flips, reference = generator.integers(0, 2, (2, 40)).astype(np.bool_)
        counts.add(pack_bits(flips), pack_bits(reference))
        kept.add(np.where(flips, np.where(reference, -1, 1), 0).astype(np.float32), 1)
    np.testing.assert_allclose(counts.mean(trim), kept.mean(), atol=1e-12)


def test_the_control_variate_is_unbiased_and_has_the_variance_that_is_claimed() -> None:
    """theta = 0.9 becomes 0.87 at 20,000 places for 20 clients. The mean of m_k - m_g is -0.03 and its variance is
    0.03 * 0.97 / 20 = 0.001455 at each place; that of the mean of m_k would be 0.87 * 0.13 / 20 = 0.005655.
    """
    places, clients = 20_000, 20
    before = np.full(places, int(0.90 * 2**32), np.uint32)
    after = np.full(places, int(0.87 * 2**32), np.uint32)
    counts, masks = SignedCounts(places), np.zeros(places)
    for client in range(clients):
        reference, own = sample_bits(before, client), sample_bits(after, client)
        counts.add(reference ^ own, reference)
        masks += unpack_bits(own, places)
    changes = counts.mean()
    # Standard errors over the places: sqrt(0.001455 / 20000) of the mean, variance * sqrt(2 / 20000) of the variance.
    assert abs(changes.mean() + 0.03) < 5 * 0.00027
    assert abs(changes.var() - 0.001455) < 5 * 0.001455 * 0.012
    assert abs((masks / clients).var() - 0.005655) < 5 * 0.005655 * 0.012


def test_learning_rate_zero_moves_nothing() -> None:
    """Where theta of FedPM drifts, theta of the control variate stays, and an upload is a header."""
    chosen = {"method": "controlled-flips", "learning_rate": 0.0}
    short = run_job(digits_problem(), settings(rounds=1, **chosen)).summary
    long = run_job(digits_problem(), settings(rounds=5, **chosen)).summary
    assert long["uplink_bytes"] == 15 * HEADER_BYTES
    assert short["accuracy_expected"] == long["accuracy_expected"]

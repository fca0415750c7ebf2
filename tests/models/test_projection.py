"""Q: drawn alike everywhere, distinct columns, the right variance, and kernels that agree with the dense matrix."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from subbit.core.errors import ModelError
from subbit.models import FlatModel
from subbit.models.projected import Projected
from subbit.models.quantiles import beta_table, normal_table
from subbit.models.sparse_matrix import Projection, fan_ins

SHAPES = st.tuples(st.integers(1, 60), st.integers(1, 40)).flatmap(
    lambda shape: st.tuples(st.just(shape[0]), st.just(shape[1]), st.integers(1, shape[1]), st.integers(0, 2**64 - 1))
)


def make(rows: int, columns: int, degree: int, key: int, **options: int) -> Projection:
    return Projection(np.linspace(0.5, 2.0, rows), columns, degree, key, **options)


@given(SHAPES)
def test_each_row_has_exactly_degree_distinct_columns(shape: tuple[int, int, int, int]) -> None:
    rows, columns, degree, _ = shape
    drawn = np.concatenate([block for _, block, _ in make(*shape).blocks()])
    assert drawn.shape == (rows, degree)
    assert drawn.max() < columns
    assert all(len(set(row)) == degree for row in drawn.tolist())


@given(SHAPES)
@settings(deadline=None)
def test_both_products_are_those_of_the_dense_matrix(shape: tuple[int, int, int, int]) -> None:
    projection = make(*shape)
    matrix = projection.dense().astype(np.float64)
    generator = np.random.default_rng(shape[0])
    values, gradient = (generator.standard_normal(size).astype(np.float32) for size in matrix.shape[::-1])
    product, transposed = np.empty(matrix.shape[0], np.float32), np.empty(matrix.shape[1], np.float32)
    projection.multiply(values, product)
    projection.multiply_transposed(gradient, transposed)
    assert product == pytest.approx(matrix @ values, abs=1e-3)
    assert transposed == pytest.approx(matrix.T @ gradient, abs=1e-3)


def test_a_matrix_that_is_drawn_anew_by_blocks_is_the_stored_one() -> None:
    """3,000 rows of 100 take two blocks of 2,621 rows at most; with no byte to store in, each use draws them again."""
    stored, drawn = make(3000, 500, 100, 7), make(3000, 500, 100, 7, stored_bytes=0)
    assert len(list(drawn.blocks())) == 2
    assert np.array_equal(stored.dense(), drawn.dense())
    values, gradient = np.linspace(0, 1, 500, dtype=np.float32), np.linspace(-1, 1, 3000, dtype=np.float32)
    results = []
    for projection in (stored, drawn, drawn):
        product, transposed = np.empty(3000, np.float32), np.empty(500, np.float32)
        projection.multiply(values, product)
        projection.multiply_transposed(gradient, transposed)
        results.append((product.tobytes(), transposed.tobytes()))
    assert results[0] == results[1] == results[2]


def test_every_machine_draws_this_matrix() -> None:
    """The bytes are part of the protocol: clients that draw another Q train another network."""
    (_, columns, levels), *_ = make(1000, 300, 10, 0x0123456789ABCDEF).blocks()
    digest = sha256(columns.astype("<u4").tobytes() + levels.astype("<u2").tobytes()).hexdigest()
    assert digest == "57dcebb3a7db4a2c8e58a00845fa473e0e1e175f3b631382ccda4edf2c269127"
    table = sha256(normal_table().astype("<f4").tobytes()).hexdigest()
    assert table == "83d418f5561d4500a1b15aeed150cd16fc32c041a64ae0af81de14c3018f895d"


def test_another_key_is_another_matrix_and_another_fingerprint() -> None:
    first, same, other = make(50, 20, 5, 1), make(50, 20, 5, 1), make(50, 20, 5, 2)
    assert np.array_equal(first.dense(), same.dense())
    assert first.fingerprint() == same.fingerprint()
    assert not np.array_equal(first.dense(), other.dense())
    assert len({first.fingerprint(), other.fingerprint(), make(50, 20, 4, 1).fingerprint()}) == 3


def test_every_set_of_columns_is_equally_likely() -> None:
    """All 10 pairs out of 5 columns, 20,000 rows: 2,000 each. Chi-square of 9 degrees: above 27.9 once in 1,000."""
    (_, columns, _), *_ = make(20_000, 5, 2, 3).blocks()
    pairs = np.sort(columns, axis=1)
    _, found = np.unique(pairs[:, 0] * 5 + pairs[:, 1], return_counts=True)
    assert len(found) == 10
    assert float(((found - 2000) ** 2 / 2000).sum()) < 27.9


def test_empty_columns_are_as_many_as_the_formula_says() -> None:
    """m = n = 20,000 and d = 1: n (1 - 1/n)^m = 20,000 / e = 7,358, standard deviation sqrt(20,000 (1/e - 2/e^2)) = 44.

    With d = 10 it is 20,000 e^-10 = 0.9; with m = 32 n none at all.
    """
    expected = 20_000 * (1 - 1 / 20_000) ** 20_000
    assert make(20_000, 20_000, 1, 5).empty_columns() == pytest.approx(expected, abs=4 * 44)
    assert make(20_000, 20_000, 10, 5).empty_columns() <= 6
    assert make(20_000, 625, 10, 5).empty_columns() == 0


def test_values_are_normal_with_the_scale_of_their_row() -> None:
    """Mean square exactly 1 up to rounding; the fourth moment of N(0, 1) is 3, cut off at 3.7 it is 2.98."""
    table = normal_table().astype(np.float64)
    assert (table**2).mean() == pytest.approx(1.0, abs=1e-5)
    assert (table**4).mean() == pytest.approx(3.0, abs=0.05)
    assert np.array_equal(table, -table[::-1])
    matrix = Projection(np.repeat([1.0, 3.0], 5000), 1000, 10, 1).dense()
    for rows, scale in ((slice(0, 5000), 1.0), (slice(5000, None), 3.0)):
        entries = matrix[rows][matrix[rows] != 0]
        assert entries.std() == pytest.approx(scale, rel=0.02)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 2.0, 20.0])
def test_beta_quantiles_have_the_mean_and_variance_of_beta(shape: float) -> None:
    """Mean 1/2, variance 1 / (4 (2a + 1)); for a = 1/2 (arcsine) the first quartile is sin^2(pi / 8) = 0.1464."""
    values = beta_table(shape) / 2.0**32
    assert values.mean() == pytest.approx(0.5, abs=1e-6)
    assert values.var() == pytest.approx(1 / (4 * (2 * shape + 1)), rel=0.01)
    assert (np.diff(values) >= 0).all()
    assert values.min() > 0
    if shape == 0.5:
        assert values[255:257].mean() == pytest.approx(0.14645, abs=1e-3)


def test_a_bias_has_the_fan_in_of_its_layer() -> None:
    """A 3x3 convolution of 2 channels has 18 inputs, a linear layer of 6 has 6; gains count their own length."""
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.LayerNorm(5), nn.Flatten(), nn.Linear(6, 3))
    found = fan_ins(FlatModel(network, "all"))
    assert found.tolist() == [18] * (4 * 18 + 4) + [5] * 10 + [6] * (3 * 6 + 3)


def test_draws_are_one_as_often_as_their_probability_and_always_beyond_it() -> None:
    """Q = identity-like (degree 1, one column): w / q is z. p = 0.3 over 400 keys: sd 0.023."""
    projection = Projection(np.ones(1), 1, 1, 1)
    value, weights = float(projection.dense()[0, 0]), torch.empty(1)
    ones = dict.fromkeys((-0.5, 0.0, 0.3, 1.0, 1.5), 0)
    for p in ones:
        for key in range(400):
            Projected(projection).write(torch.tensor([p]), weights, key)
            ones[p] += round(float(weights[0]) / value)
    assert ones[-0.5] == ones[0.0] == 0
    assert ones[1.0] == ones[1.5] == 400
    assert ones[0.3] / 400 == pytest.approx(0.3, abs=0.1)


def test_continuous_weights_are_the_mean_of_drawn_ones() -> None:
    projection = make(30, 8, 3, 1)
    scores, total, weights = torch.linspace(-0.2, 1.2, 8), torch.zeros(30), torch.empty(30)
    for key in range(1000):
        Projected(projection).write(scores, weights, key)
        total += weights
    Projected(projection, training="continuous").write(scores, weights, 0)
    assert (total / 1000).numpy() == pytest.approx(weights.numpy(), abs=0.25)
    assert weights.numpy() == pytest.approx(projection.dense() @ scores.clamp(0, 1).numpy(), abs=1e-5)


def test_around_a_base_weights_are_base_plus_product() -> None:
    projection, base = make(10, 4, 2, 1), torch.arange(10.0)
    weights = torch.empty(10)
    Projected(projection, base).place(torch.zeros(4), weights)
    assert torch.equal(weights, base)


@pytest.mark.parametrize(
    ("gate", "expected"),
    [("strict", [0.0, 0.0, 1.0, 0.0, 0.0]), ("inward", [0.0, 0.0, 1.0, 1.0, 1.0])],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gates(gate: str, expected: list[float], sign: float) -> None:
    """One row of ones over five columns, gradient g > 0: every s falls. At s <= 0 that leads outside, at s >= 1 back.

    With g < 0 the picture is mirrored.
    """
    projection = Projection(np.ones(1), 5, 5, 1)
    slopes = projection.dense()[0]
    scores = torch.tensor([-0.5, 0.0, 0.5, 1.0, 1.5])
    out = torch.empty(5)
    # The columns' own signs are divided out: each place then has the gradient `sign`.
    passed = []
    for place in range(5):
        gradient = torch.tensor([sign / float(slopes[place])])
        Projected(projection, gate=gate).pull_back(gradient, scores, out)  # type: ignore[arg-type]
        passed.append(float(out[place]))
    wanted = expected if sign > 0 else [-value for value in expected[::-1]]
    assert passed == pytest.approx(wanted, abs=1e-6)


def test_a_kept_key_draws_the_same_bits_in_every_step() -> None:
    projection = make(30, 8, 3, 1)
    scores, first, second = torch.full((8,), 0.5), torch.empty(30), torch.empty(30)
    kept, fresh = Projected(projection, key=9), Projected(projection)
    kept.write(scores, first, 1)
    kept.write(scores, second, 2)
    assert torch.equal(first, second)
    fresh.write(scores, first, 1)
    fresh.write(scores, second, 2)
    assert not torch.equal(first, second)


def test_wrong_sizes_are_refused_before_a_kernel_reads_beyond_them() -> None:
    with pytest.raises(ModelError, match="degree=5: a row of 4 columns"):
        make(10, 4, 5, 1)
    projection = make(10, 4, 2, 1)
    with pytest.raises(ModelError, match=r"needs float32 \(4,\)"):
        projection.multiply(np.zeros(5, np.float32), np.zeros(10, np.float32))
    with pytest.raises(ModelError, match=r"needs float32 \(10,\)"):
        projection.multiply_transposed(np.zeros(10), np.zeros(4, np.float32))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"needs float32 \(4,\)"):
        Projected(projection).write(torch.zeros(3), torch.zeros(10), 1)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard
from tests.oracles import rotate, rotate_back

from subbit.codecs.rotation import BLOCK, _hadamard, block_bounds


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64, 128, 1024])
def test_the_transform_is_the_hadamard_matrix(size: int) -> None:
    """On small integers every sum is exact in float32, so equality is exact."""
    vector = np.random.default_rng(size).integers(-9, 10, size).astype(np.float32)
    transformed = vector.copy()
    _hadamard(transformed)
    assert np.array_equal(transformed, hadamard(size) @ vector)


@given(st.integers(0, 3 * BLOCK), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_the_inverse_undoes_the_rotation_and_the_norm_stays(size: int, key: int) -> None:
    vector = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    rotated = rotate(vector, key)
    assert rotated.shape == vector.shape
    assert np.abs(rotate_back(rotated, key) - vector).max(initial=0) < 1e-5
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(vector), rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 31, 48, 64, 100])
def test_the_rotation_is_an_orthogonal_matrix(size: int) -> None:
    matrix = np.stack([rotate(row, 7) for row in np.eye(size, dtype=np.float32)])
    assert np.allclose(matrix @ matrix.T, np.eye(size), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, []),
        (1, [(0, 1)]),
        (BLOCK - 1, [(0, BLOCK - 1)]),
        (2 * BLOCK - 1, [(0, 2 * BLOCK - 1)]),
        (2 * BLOCK, [(0, BLOCK), (BLOCK, 2 * BLOCK)]),
        (3 * BLOCK + 5, [(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK + 5)]),
    ],
)
def test_the_rest_joins_the_last_block(size: int, expected: list[tuple[int, int]]) -> None:
    assert block_bounds(size) == expected


@pytest.mark.parametrize("size", [1024, 1025, 1300, 1536, 1800, 2047])
@pytest.mark.parametrize("place", [0, 700, -1])
def test_a_single_spike_is_spread_over_its_whole_block(size: int, place: int) -> None:
    """Evenly spread normal values would have a mean magnitude of sqrt(2 / pi) = 0.798 in units of their root mean
    square. Leaving half of the block without energy would give 0.56."""
    vector = np.zeros(size, np.float32)
    vector[place] = 1
    magnitudes = np.mean([np.abs(rotate(vector, key)).mean() for key in range(40)])
    assert magnitudes * np.sqrt(size) == pytest.approx(0.798, abs=0.02)


def test_keys_and_blocks_draw_different_signs() -> None:
    vector = np.tile(np.random.default_rng(0).standard_normal(BLOCK).astype(np.float32), 2)
    rotated = rotate(vector, 1)
    assert abs(np.corrcoef(rotated[:BLOCK], rotated[BLOCK:])[0, 1]) < 0.05
    assert abs(np.corrcoef(rotated, rotate(vector, 2))[0, 1]) < 0.05

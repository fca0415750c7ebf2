"""Maps in operations of torch, as on a GPU, and the compiled kernels of the CPU: the same bits from the same key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from subbit.codecs.hashing import murmur64 as compiled_murmur64
from subbit.codecs.sampler import uniforms
from subbit.models.device_projection import DeviceProjection, murmur64
from subbit.models.draws import BLOCK, uniforms_24
from subbit.models.popup import RescaledMask, TopMask, _kept, largest
from subbit.models.projected import Projected
from subbit.models.reparametrisation import BernoulliMask, Reparametrisation, ThresholdMask
from subbit.models.sparse_matrix import Projection
from subbit.models.template import Template

CPU = torch.device("cpu")
KEYS = st.integers(0, 2**64 - 1)


def normal(size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@given(key=KEYS, start=st.integers(0, 2**32 - 100), count=st.integers(0, 100))
def test_the_same_uniforms(key: int, start: int, count: int) -> None:
    words = uniforms(key, start, count)
    assert np.array_equal(uniforms_24(key, start, count, CPU).numpy(), (words >> 8).astype(np.float32) / 2**24)


@given(values=st.lists(KEYS, min_size=1, max_size=20))
def test_the_same_hash(values: list[int]) -> None:
    words = np.array(values, dtype=np.uint64)
    with np.errstate(over="ignore"):
        expected = [int(compiled_murmur64(word)) for word in words]
    found = murmur64(torch.from_numpy(words.view(np.int64))).numpy().view(np.uint64)
    assert found.tolist() == expected


MASKS: dict[str, Any] = {
    "sampled": BernoulliMask,
    "sampled, with the factor theta": lambda initial: BernoulliMask(initial, "theta"),
    "threshold": lambda initial: ThresholdMask(initial, 0.6),
    "rescaled": lambda initial: RescaledMask(initial, Template(("a", "b"), ((7,), (initial.numel() - 7,)))),
}


@pytest.mark.parametrize("size", [1_000, BLOCK + 13, 10_000_000])
@pytest.mark.parametrize("kind", MASKS)
def test_the_same_masks(kind: str, size: int) -> None:
    initial, scores, gradient = normal(size, 1), 3 * normal(size, 2), normal(size, 3)
    compiled, plain = MASKS[kind](initial), MASKS[kind](initial)
    plain.compiled = False
    for key in (0, 2**64 - 1, 123456789) if size < BLOCK else (987654321,):
        found = [_both(network, scores, gradient, key) for network in (compiled, plain)]
        assert torch.equal(found[0][0], found[1][0])  # Weights.
        torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-6, atol=0)
    for name in ("expected", "thresholded"):
        if hasattr(compiled, name):
            one, other = torch.empty(size), torch.empty(size)
            getattr(compiled, name)(scores, one)
            getattr(plain, name)(scores, other)
            assert torch.equal(one, other)


def _both(network: Reparametrisation, scores: Tensor, gradient: Tensor, key: int) -> tuple[Tensor, Tensor]:
    weights, out = torch.empty(len(scores)), torch.empty(len(scores))
    network.write(scores, weights, key)
    network.pull_back(gradient, scores, out)
    return weights, out


class Elsewhere(Tensor):
    """A tensor of the CPU that says it is not there, so that maps take the way of other devices."""

    @property
    def device(self) -> Any:  # type: ignore[override]
        return torch.device("meta")


@given(seed=st.integers(0, 1000), count=st.integers(1, 40), levels=st.integers(1, 5))
def test_the_largest_are_the_same_with_ties(seed: int, count: int, levels: int) -> None:
    values = torch.randint(0, levels, (40,), generator=torch.Generator().manual_seed(seed)).float()
    expected = largest(values.numpy(), count)
    chosen = _kept(values.as_subclass(Elsewhere), count)
    assert np.array_equal(np.asarray(chosen.as_subclass(Tensor)), expected)


def test_top_masks_keep_the_same() -> None:
    template = Template(("a", "b"), ((30, 20), (400,)))
    network, scores, weights = TopMask(normal(1000, 1), template, 0.3), normal(1000, 2), torch.empty(1000)
    network.write(scores, weights, 0)
    assert [int((part != 0).sum()) for part in template.views(weights)] == [180, 120]


@pytest.mark.parametrize("stored", [0, 1 << 28])
@pytest.mark.parametrize(("rows", "columns", "degree"), [(50, 7, 7), (1_000, 100, 10), (1_000_000, 31_250, 10)])
def test_the_same_projection(rows: int, columns: int, degree: int, stored: int) -> None:
    scales = np.linspace(0.1, 2, rows)
    projection = Projection(scales, columns, degree, 2**63 + 12345, stored)
    plain = DeviceProjection(projection, CPU)
    blocks = [*projection.blocks()]
    drawn = [*plain.blocks()]
    for place, kind in ((1, np.uint32), (2, np.uint16)):
        ours, theirs = (np.concatenate([np.asarray(block[place]) for block in group]) for group in (blocks, drawn))
        assert np.array_equal(ours, theirs.astype(kind))
    values, gradient = normal(columns, 1), normal(rows, 2)
    one, other = torch.empty(rows), torch.empty(rows)
    projection.multiply(values.numpy(), one.numpy())
    plain.multiply(values, other)
    assert torch.equal(one, other)
    back, other_back = torch.empty(columns), torch.empty(columns)
    projection.multiply_transposed(gradient.numpy(), back.numpy())
    plain.multiply_transposed(gradient, other_back)
    torch.testing.assert_close(back, other_back, rtol=1e-4, atol=1e-3)


def test_the_same_draws_of_a_projection() -> None:
    network = Projected(Projection(np.ones(500), 100, 5, 3))
    values = torch.rand(100, generator=torch.Generator().manual_seed(1)) * 1.4 - 0.2
    plain = (uniforms_24(77, 0, 100, CPU) < values).to(torch.float32)
    assert torch.equal(network._draw(values, 77), plain)

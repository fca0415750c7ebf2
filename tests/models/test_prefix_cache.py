"""The cache of the frozen prefix: exact, whatever the batch sizes; in memory, shared memory or a file."""

from __future__ import annotations

import os
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from tests.problems import digits_problem, settings, small_vit
from torch import Tensor, nn

from subbit.core.randomness import torch_generator
from subbit.data.examples import Examples
from subbit.models import cache_store, prefix_cache
from subbit.models.cache_store import CacheStore, make_store
from subbit.models.find_prefix import find_prefix
from subbit.models.flat import FlatModel
from subbit.models.prefix_cache import PrefixCache
from subbit.objectives.classes import Classification
from subbit.runtime.run import run_job

EXAMPLES, WIDTH = 70, 300


class Counted(nn.Module):
    """A wide layer that counts the examples that it has seen."""

    def __init__(self, by_size: bool = False) -> None:
        super().__init__()
        self.layer, self.by_size, self.seen = nn.Linear(WIDTH, WIDTH), by_size, 0

    def forward(self, values: Tensor) -> Tensor:
        self.seen += len(values)
        outputs: Tensor = self.layer(values)
        # As a kernel that rounds differently in small batches.
        return outputs + 1e-6 if self.by_size and len(values) < 50 else outputs


def cached(by_size: bool = False, dtype: torch.dtype = torch.float32) -> tuple[PrefixCache, Examples, Counted]:
    generator = torch_generator(0)
    data = Examples(
        torch.randn(EXAMPLES, WIDTH, generator=generator), torch.zeros(EXAMPLES).long(), rows=torch.arange(EXAMPLES)
    )
    front = Counted(by_size)
    flat = FlatModel(nn.Sequential(front, nn.ReLU(), nn.Linear(WIDTH, 3)), "2.*")
    prefix = find_prefix(flat, (), data.inputs)
    assert prefix is not None
    store = make_store((EXAMPLES, prefix.width), dtype, 1 << 30, shared=False)
    assert store is not None
    cache = PrefixCache(flat.module, Classification())
    cache.open(prefix, store)
    front.seen = 0
    return cache, data, front


def batch(data: Examples, *positions: int) -> Examples:
    return data.select(np.array(positions))


def test_an_example_is_computed_once_in_batches_of_one_size_and_a_new_batch_size_is_checked() -> None:
    cache, data, front = cached()
    cache.prepare(data)
    assert front.seen == 2 * prefix_cache.FILL  # 70 examples: two batches, the second filled up with repetitions.
    cache.prepare(data)
    assert front.seen == 2 * prefix_cache.FILL
    part = data.select(np.arange(60))
    expected = cache.module(part.inputs)
    for checks in (60, 0, 0):  # 60 x 300 values are enough to trust this size.
        front.seen = 0
        assert torch.equal(cache.outputs(part), expected)
        assert front.seen == checks
    assert torch.equal(cache.outputs(part), expected)


def test_a_batch_size_that_rounds_differently_runs_the_whole_module() -> None:
    cache, data, front = cached(by_size=True)
    small, large = data.select(np.arange(3, 9)), data.select(np.arange(64)[::-1].copy())
    for part in (small, large, small, large):
        assert torch.equal(cache.outputs(part), cache.module(part.inputs))
    front.seen = 0
    cache.outputs(small)
    cache.outputs(large)
    assert front.seen == len(small)


def test_few_values_are_not_enough_to_trust_a_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "ENOUGH", 3 * 60 * WIDTH)
    cache, data, front = cached()
    cache.prepare(data)
    for first, checks in ((0, 60), (2, 60), (4, 60), (6, 0)):
        front.seen = 0
        cache.outputs(data.select(np.arange(first, first + 60)))
        assert front.seen == checks


def test_examples_without_a_number_and_empty_batches_run_the_whole_module() -> None:
    cache, data, front = cached()
    nameless = Examples(data.inputs[:4], data.labels[:4])
    cache.prepare(nameless)
    assert torch.equal(cache.outputs(nameless), cache.module(nameless.inputs))
    assert front.seen == 8
    assert cache.outputs(batch(data)).shape == (0, 3)
    cache.prepare(batch(data))


def test_a_module_that_takes_another_way_than_before_is_run_whole() -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

        def forward(self, values: Tensor) -> Tensor:
            early = self.front(values)
            outputs: Tensor = self.last(early)
            return outputs + early[:, :1] if float(values[0, 0]) > 100 else outputs

    flat = FlatModel(Moody(), "last.*")
    inputs = torch.randn(6, WIDTH, generator=torch_generator(0))
    inputs[5, 0] = 101.0
    data = Examples(inputs, torch.zeros(6).long(), rows=torch.arange(6))
    prefix = find_prefix(flat, (), inputs)
    assert prefix is not None
    store = make_store((6, prefix.width), torch.float32, 1 << 30, shared=False)
    assert store is not None
    cache = PrefixCache(flat.module, Classification())
    cache.open(prefix, store)
    strange = batch(data, 5, 0)
    assert torch.equal(cache.outputs(strange), flat.module(strange.inputs))
    assert torch.isfinite(cache.outputs(strange)).all()


def test_bfloat16_takes_half_the_memory_and_rounds() -> None:
    cache, data, _ = cached(dtype=torch.bfloat16)
    part = data.select(np.arange(60))
    outputs, expected = cache.outputs(part), cache.module(part.inputs)
    assert torch.allclose(outputs, expected, atol=0.05)
    assert not torch.equal(outputs, expected)


def fill(store: CacheStore) -> None:
    store.keep(torch.tensor([1, 2]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


@pytest.mark.parametrize("where", ["memory", "file"])
def test_another_process_writes_into_the_same_store(where: str) -> None:
    before = set(Path(tempfile.gettempdir()).glob("subbit-cache-*"))
    store = make_store((4, 2), torch.float32, 1 << 20 if where == "memory" else 0, shared=True)
    assert store is not None
    process = get_context("spawn").Process(target=fill, args=(store,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert store.values[1:3].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert store.filled.tolist() == [0, 1, 1, 0]
    assert set(Path(tempfile.gettempdir()).glob("subbit-cache-*")) == before


def test_without_room_there_is_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_store((4, 1 << 45), torch.float32, 0, shared=False) is None
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert make_store((4, 2), torch.float32, 0, shared=False) is None
    monkeypatch.setattr(cache_store, "OPEN_FILES", Path("/nowhere"))
    assert make_store((4, 2), torch.float32, 0, shared=False) is None


def refuse(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "job",
    [
        {"method": "deltamask", "select": "last 1 blocks: weights"},
        {"method": "fedavg", "select": "head", "head": "keep"},
        {"method": "fedavg", "select": "last 1 blocks", "regulariser": "moon", "workers": 2},
        {"method": "deltamask", "select": "last 1 blocks: weights", "workers": 2, "cache_gb": 0.0},
    ],
)
def test_a_run_with_the_cache_is_the_run_without_it(job: dict[str, Any]) -> None:
    problem = digits_problem(small_vit())
    results = [
        run_job(problem, settings(**{"rounds": 2, "head": "lda", **job, "cache": how})) for how in ("exact", "off")
    ]
    one, two = (result.summary for result in results)
    assert one["model_sha256"] == two["model_sha256"]
    assert one["accuracy_by_round"] == two["accuracy_by_round"]
    assert one["total_bytes"] == two["total_bytes"]

"""GFLOP/s of matrix products by torch and by oneDNN."""

from __future__ import annotations

import json
import tomllib
from itertools import count
from typing import Any

import pytest
import torch
from benchmarks.bench.engine import products
from benchmarks.bench.engine.child import ROOT
from benchmarks.bench.engine.products import SHAPE, measure_products
from benchmarks.bench.engine.startup import DEMO

from subbit.models import linear_products
from subbit.models.load_model import BUNDLED


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all products by oneDNN."""
    found: list[tuple[int, ...]] = []
    multiply = linear_products._multiply

    def watched(*given: Any) -> torch.Tensor:
        found.append((*given[0].shape, given[1].shape[0]))
        return multiply(*given)

    monkeypatch.setattr(linear_products, "_multiply", watched)
    return found


def test_rates_by_hand(monkeypatch: pytest.MonkeyPatch, by_onednn: list[tuple[int, ...]]) -> None:
    """With a clock that goes on by 1 ms at every look, 2 x 100 x 200 x 250 operations are 10 GFLOP/s."""
    if not linear_products._there():
        pytest.skip("this torch has no oneDNN")
    ticks = count()
    monkeypatch.setattr(products, "thread_time", lambda: next(ticks) / 1000)
    assert measure_products((100, 200, 250), seconds=0.01) == {"torch": 10.0, "onednn": 10.0}
    # Ten looks from the end's own: five products, after one that warms up.
    assert by_onednn == [(100, 200, 250)] * 6


def test_torch_alone_where_there_is_no_onednn(
    monkeypatch: pytest.MonkeyPatch, by_onednn: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr(linear_products, "_there", lambda: False)
    rates = measure_products(seconds=0.01)
    assert set(rates) == {"torch"}
    assert rates["torch"] > 0
    assert not by_onednn


def test_the_shape_is_that_of_the_demo() -> None:
    """Places of all images of a batch, and the widths of the network's blocks."""
    job = tomllib.loads((ROOT / DEMO).read_text())
    sizes = json.loads((BUNDLED[job["model"]] / "config.json").read_text())
    places = 1 + (sizes["image_size"] // sizes["patch_size"]) ** 2
    expected = (job[job["method"]]["batch_size"] * places, sizes["hidden_size"], sizes["intermediate_size"])
    assert expected == SHAPE

"""The networks and data that the arena's jobs name, where they are on this machine (`make arena-data`)."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("SUBBIT_DATA", ROOT / "data"))


@pytest.fixture
def efficientnet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setenv("SUBBIT_DATA", str(DATA))
    return importlib.import_module("experiments.arena.efficientnet")


def test_efficientnet_has_the_size_of_the_published_one(efficientnet: Any) -> None:
    """4.65 million parameters with 1,000 classes."""
    network = efficientnet.EfficientNetLite0(1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008
    assert network(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 1000)


@pytest.mark.parametrize(("length", "size", "stride"), [(8, 3, 1), (8, 3, 2), (7, 5, 2), (2, 5, 2)])
def test_padding_is_that_of_tensorflow(length: int, size: int, stride: int, efficientnet: Any) -> None:
    """As many outputs as strides fit, and what is odd of the padding to the right."""
    layer = efficientnet.Same(1, 1, size, stride, bias=False)
    torch.nn.init.ones_(layer.weight)
    found = layer(torch.ones(1, 1, length, length))[0, 0, 0]
    assert len(found) == -(-length // stride)
    total = max((len(found) - 1) * stride + size - length, 0)
    padded = [0.0] * (total // 2) + [1.0] * length + [0.0] * (total - total // 2)
    line = [sum(padded[start * stride : start * stride + size]) for start in range(len(found))]
    assert found.tolist() == [line[0] * value for value in line]


def test_every_tensor_of_the_package_has_its_place(efficientnet: Any) -> None:
    assert efficientnet.our_name("_blocks.3._bn1.running_var") == "blocks.3.depthwise_norm.running_var"
    assert efficientnet.our_name("_bn1.weight") == "last_norm.weight"
    assert efficientnet.our_name("_fc.weight") is None


def test_pretrained_weights_load(efficientnet: Any) -> None:
    if not (DATA / "efficientnet-lite0").is_dir():
        pytest.skip("make arena-data")
    network = efficientnet.build(10).eval()
    assert float(network.stem_norm.running_var.mean()) != 1.0


def test_news_are_rows_of_five_classes_without_repetition() -> None:
    path = DATA / "bbc-news" / "news.jsonl"
    if not path.is_file():
        pytest.skip("make arena-data")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {row["label"] for row in rows} == {"business", "entertainment", "politics", "sports", "tech"}
    assert len({row["text"] for row in rows}) == len(rows) > 2000

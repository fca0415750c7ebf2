"""Compression of peft's state dicts: many small arrays with long names, half of them zero at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg

from subbit.codecs import make_codec
from subbit.flower import compress
from subbit.flower.compression import Compression
from tests.flower.loopback import NODES, Loopback
from tests.flower.lora import adapters, lora_app

pytestmark = pytest.mark.usefixtures("a_run")

State = dict[str, torch.Tensor]


def after_two_rounds(
    start: State, made: Compression, dtype: torch.dtype = torch.float32
) -> tuple[State, Loopback, FedAvg]:
    grid, strategy = Loopback(lora_app(made, {}, dtype)), made.strategy(FedAvg(fraction_evaluate=0))
    result = strategy.start(grid, ArrayRecord(start), num_rounds=2)  # type: ignore[arg-type]
    return result.arrays.to_torch_state_dict(), grid, strategy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_adapters_keep_names_order_shapes_and_types(dtype: torch.dtype) -> None:
    """Two rounds add 0.02 to every value. Four bits leave out about a tenth of a change, float16 rounds to 2^-11."""
    start = adapters(dtype=dtype, cast=False)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in start
    found, grid, strategy = after_two_rounds(start, compress(codec="eden", bits=4, first=make_codec("dense")), dtype)
    assert grid.errors == []
    assert strategy.subbit.refused == {}  # type: ignore[attr-defined]
    assert list(found) == list(start)
    for name, before in start.items():
        assert (found[name].dtype, found[name].shape) == (dtype, before.shape)
        assert torch.allclose((found[name] - before).float(), torch.tensor(0.02), atol=0.01)
    mean = torch.cat([(found[name] - before).float().ravel() for name, before in start.items()]).mean()
    assert mean.item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_adapters_of_a_model_in_half_precision_are_float32(dtype: torch.dtype) -> None:
    """By peft's default, so that models in bfloat16 or 4 bits need nothing more: Flower cannot send bfloat16 itself."""
    start = adapters(dtype=dtype)
    found, grid, _ = after_two_rounds(start, compress(codec="dense"))
    assert grid.errors == []
    assert all(torch.allclose(found[name], start[name] + 0.02, atol=1e-6) for name in start)
    with pytest.raises(TypeError, match="BFloat16"):
        ArrayRecord(adapters(dtype=torch.bfloat16, cast=False))


def fewer(start: State) -> ArrayRecord:
    return ArrayRecord(dict(list(start.items())[1:]))


def other_rank(start: State) -> ArrayRecord:
    return ArrayRecord(adapters(rank=8))


def other_names(start: State) -> ArrayRecord:
    """As of a model that was saved with another name for its adapters."""
    return ArrayRecord({name.replace("weight", "default.weight"): tensor for name, tensor in start.items()})


def diverged(start: State) -> ArrayRecord:
    return ArrayRecord({name: tensor / 0 for name, tensor in start.items()})


@pytest.mark.parametrize(
    ("changed", "cause", "reason"),
    [
        (fewer, "template", "these are in one of them only: ['base_model.model.model.layers.0.self_attn.q_proj.lora_A"),
        (other_rank, "template", "arrived with shape (4, 16) and is sent back with (8, 16)"),
        (other_names, "template", "these are in one of them only"),
        (diverged, "value", "every value must be finite"),
    ],
)
@pytest.mark.parametrize("down", ["same", None])
def test_a_client_with_other_adapters_is_refused_by_cause_and_the_round_goes_on(
    changed: Callable[[State], ArrayRecord],
    cause: str,
    reason: str,
    down: Literal["same"] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = adapters()
    made = compress(codec="dense", down=down)
    grid = Loopback(lora_app(made, {NODES[1]: changed(start)}))
    strategy = made.strategy(FedAvg(fraction_evaluate=0))
    logging.getLogger("flwr").addHandler(caplog.handler)
    result = strategy.start(grid, ArrayRecord(start), num_rounds=2)  # type: ignore[arg-type]
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert grid.errors == []
    assert strategy.subbit.refused == {cause: 2}  # type: ignore[attr-defined]
    assert reason in caplog.text
    if strategy.subbit.sent is not None:  # type: ignore[attr-defined]
        assert set(strategy.subbit.sent.confirmed.values()) == {2}  # type: ignore[attr-defined]
    found = result.arrays.to_torch_state_dict()
    assert all(torch.allclose(found[name], start[name] + 0.02, atol=1e-6) for name in start)

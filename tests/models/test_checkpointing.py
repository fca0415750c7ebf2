"""checkpointing: activations computed again, and nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.problems import conv_net, digits_problem, mlp, small_vit
from torch import Tensor, nn

import subbit
from subbit.core.errors import ConfigError
from subbit.models import FlatModel, model_sha256
from subbit.models.checkpointing import checkpoint_blocks, is_checkpointed, without_checkpoints
from subbit.models.find_prefix import find_prefix


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout, self.calls = nn.Linear(8, 8), nn.Dropout(0.3), 0

    def forward(self, hidden: Tensor) -> Tensor:
        self.calls += 1
        return hidden + self.dropout(torch.relu(self.layer(hidden)))


def stack() -> nn.Module:
    return nn.Sequential(nn.Sequential(*(Block() for _ in range(3))), nn.Linear(8, 3))


def gradient(module: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(5)  # The same dropout for every module.
    outputs = module(inputs)
    (outputs if isinstance(outputs, Tensor) else outputs.logits).square().mean().backward()
    return torch.cat([value.grad.flatten() for value in module.parameters() if value.grad is not None])


def test_the_gradient_is_the_same_and_blocks_run_twice() -> None:
    module, inputs = stack(), torch.randn(4, 8)
    lean, fresh = copy.deepcopy(module), copy.deepcopy(module)
    checkpoint_blocks(lean)
    again = copy.deepcopy(lean)
    assert torch.equal(gradient(lean, inputs), gradient(module, inputs))
    assert [block.calls for block in lean[0]] == [2, 2, 2]
    assert [block.calls for block in again[0]] == [0, 0, 0]  # A copy runs its own blocks.
    assert torch.equal(gradient(again, inputs), gradient(fresh, inputs))
    lean.eval()(inputs)
    assert [block.calls for block in lean[0]] == [3, 3, 3]
    without_checkpoints(lean)
    assert not any("forward" in vars(each) for each in lean.modules())


def llama() -> tuple[nn.Module, Tensor]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=40, attention_dropout=0.2, **sizes)
    return LlamaForCausalLM(config), torch.randint(0, 40, (3, 6))


def vit() -> tuple[nn.Module, Tensor]:
    return small_vit(), torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)


@pytest.mark.parametrize("make", [llama, vit])
def test_models_of_transformers(make: Any) -> None:
    module, inputs = make()
    lean = copy.deepcopy(module.train())
    checkpoint_blocks(lean)
    assert sum(map(is_checkpointed, lean.modules())) == (3 if make is llama else 2)
    assert torch.equal(gradient(lean, inputs), gradient(module, inputs))


def kept_values(module: nn.Module, inputs: Tensor) -> int:
    """Numbers that autograd keeps for the backward pass, weights left out."""
    weights = {value.data_ptr() for value in module.parameters()}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        if value.data_ptr() not in weights:
            kept[value.data_ptr()] = value.numel()
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        outputs = module(inputs)
    del outputs
    return sum(kept.values())


def test_less_is_kept() -> None:
    module, inputs = vit()
    whole = kept_values(module.train(), inputs)
    checkpoint_blocks(module)
    assert kept_values(module, inputs) < whole / 3


def without_dropout() -> nn.Module:
    """The frozen layers of a network that draws nothing are cached."""
    module = small_vit()
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return module


RUNS: list[dict[str, Any]] = [
    {"method": "fedavg", "select": "all"},
    {"method": "deltamask", "select": "last 1 blocks: weights"},
    {"method": "fedavg", "select": "*layers.1.mlp*"},
    {"method": "fedpeft", "tuning": "lora"},
    {"method": "fedpeft", "tuning": "prompt"},
]


@pytest.mark.parametrize("make", [small_vit, without_dropout])
@pytest.mark.parametrize("values", RUNS, ids=lambda values: "-".join(values.values()))
def test_a_run_ends_with_the_same_bits(values: dict[str, Any], make: Any) -> None:
    """With the cache of frozen layers, whose cut may lie at a block or inside one."""
    problem = digits_problem(make(), examples=60)
    data = [problem.client_data(client) for client in range(2)]
    plain, lean = (
        subbit.fine_tune(problem.module, data, problem.test, rounds=1, checkpointing=lean, **values)
        for lean in (False, True)
    )
    assert model_sha256(lean.module) == model_sha256(plain.module)
    assert not any(map(is_checkpointed, lean.module.modules()))


class Straight(nn.Module):
    """A block without a connection around its layers, so that a cut can lie inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, hidden: Tensor) -> Tensor:
        outputs: Tensor = self.second(torch.relu(self.first(hidden)))
        return outputs


def test_the_cache_does_not_enter_a_block() -> None:
    module, inputs = nn.Sequential(nn.Sequential(*(Straight() for _ in range(3))), nn.Linear(8, 3)), torch.randn(12, 8)
    plain = find_prefix(FlatModel(module, "0.2.second.*"), (), inputs)
    assert plain is not None
    assert plain.cut is module[0][2].second
    checkpoint_blocks(module)
    prefix = find_prefix(FlatModel(module, "0.2.second.*"), (), inputs)
    assert prefix is not None
    assert prefix.cut is module[0][2]
    without_checkpoints(module)
    data = (inputs, torch.arange(12) % 3)
    results = [
        subbit.fine_tune(module, [data], data, method="fedavg", select="0.2.second.*", rounds=2, checkpointing=lean)
        for lean in (False, True)
    ]
    assert model_sha256(results[0].module) == model_sha256(results[1].module) != model_sha256(module)


def test_refusals() -> None:
    data = digits_problem().client_data(0)
    with pytest.raises(ConfigError, match=r"checkpointing: .* has no blocks .*; leave checkpointing out"):
        subbit.fine_tune(mlp(), [data], data, method="fedavg", checkpointing=True)
    values: dict[str, Any] = {"privacy": "per-step", "checkpointing": True, "head": "keep"}
    with pytest.raises(ConfigError, match=r"privacy=per-step: .* leave checkpointing out"):
        subbit.fine_tune(small_vit(), [data], data, method="fedavg", **values)


def test_running_statistics_are_not_counted_twice() -> None:
    blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1)) for _ in range(2)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = blocks, nn.Linear(64, 10)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(self.blocks(images / 255).flatten(1))
            return logits

    data = digits_problem(conv_net(), examples=60).client_data(0)
    with pytest.raises(ConfigError, match=r"checkpointing: 'blocks\.0' has batch normalisation"):
        subbit.fine_tune(Net(), [data], data, method="fedavg", checkpointing=True, batchnorm="average")
    result = subbit.fine_tune(Net(), [data], data, method="fedavg", checkpointing=True, batchnorm="batch", rounds=1)
    assert result.score >= 0

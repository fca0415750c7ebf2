"""Random weights are recognised, whatever made them; trained ones are never taken for random."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.problems import conv_net, mlp, small_vit
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from subbit.models import load_classifier
from subbit.models.untrained import is_untrained

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def zero_biases() -> nn.Module:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for layer in (module[0], module[2]):
        assert isinstance(layer, nn.Linear)
        nn.init.kaiming_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return module


FRESH: list[Callable[[], nn.Module]] = [
    lambda: mlp(16),
    conv_net,
    small_vit,
    zero_biases,
    lambda: nn.LSTM(5, 7),
    lambda: nn.ConvTranspose2d(3, 5, 3),
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)),
    lambda: nn.TransformerEncoderLayer(16, 2),
    lambda: BertModel(BertConfig(**SMALL)),
    lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2)),
    lambda: LlamaForCausalLM(LlamaConfig(**SMALL, vocab_size=100)),
]


def trained(module: nn.Module, step: Callable[[], Tensor]) -> nn.Module:
    """A single small step: whatever trains moves all."""
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-4)
    step().backward()
    optimiser.step()
    return module


@pytest.mark.parametrize("build", FRESH)
def test_random_weights_are_recognised(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert is_untrained(build())


def test_one_step_is_seen() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(16, 64), torch.arange(16) % 10
    for module in (mlp(32), nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 10))):
        assert is_untrained(module)
        trained(module, lambda module=module: functional.cross_entropy(module(inputs), labels))  # type: ignore[misc]
        assert not is_untrained(module)


def test_batches_that_a_norm_has_seen_count() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    module(torch.randn(4, 8))
    assert not is_untrained(module)


def test_a_pretrained_body_with_a_new_head_was_trained() -> None:
    assert not is_untrained(load_classifier("subbit/vit-micro", 5, key=1))


@pytest.mark.parametrize("module", [nn.ReLU(), nn.Embedding(5, 4), nn.LazyLinear(3)])
def test_what_says_nothing_is_not_taken_for_random(module: nn.Module) -> None:
    assert not is_untrained(module)

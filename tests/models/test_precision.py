"""Modules of lower precision: what is trained is float32, and the rest is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.peft.tunings import tune
from torch import Tensor, nn
from torch.nn import functional

import subbit
from subbit.conformance.method_laws import frozen_digest
from subbit.core.errors import ModelError
from subbit.models.flat import FlatModel
from subbit.peft.lora import save_adapter


class Small(nn.Module):
    """A parameter of its own, a layer inside a layer, and attention of torch, which never calls its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.token
        logits: Tensor = self.head(self.norm(self.encoder(hidden))[:, 0])
        return logits


SELECTIONS = ["head", "all: biases", "norm.*", "*out_proj*", "*linear1.weight + embedding.weight", "token", "all"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_selected_layers_become_float32(selection: str, dtype: torch.dtype) -> None:
    whole, tokens, labels = Small(), torch.randint(0, 20, (6, 5)), torch.arange(6) % 3
    module = Small().to(dtype)
    module.load_state_dict(whole.state_dict())
    flat = FlatModel(module, selection)
    assert flat.weights.dtype == torch.float32
    for mode in (flat.training_mode, flat.evaluation_mode):
        mode()
        logits = module(tokens)
        torch.testing.assert_close(logits.float(), whole.train(module.training)(tokens), rtol=0.1, atol=0.1)
    # The head and what the loss sees are float32, as soon as the head is selected.
    assert (logits.dtype == torch.float32) == (selection in ("head", "all: biases", "token", "all"))
    frozen = frozen_digest(flat)
    flat.backward(functional.cross_entropy(logits.float(), labels))
    assert flat.gradient.any()
    assert bool(flat.gradient.isfinite().all())
    assert frozen_digest(flat) == frozen
    other = FlatModel(module, "head")
    other.evaluation_mode()
    assert module(tokens).dtype == torch.float32


def test_tied_layers_are_converted_together() -> None:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.middle = nn.Embedding(20, 8), nn.Linear(8, 8)
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.head(self.middle(self.embedding(tokens)))
            return logits

    module = Language().bfloat16()
    flat = FlatModel(module, "embedding.*")
    assert module.head.weight is module.embedding.weight
    assert (module.head.weight.dtype, module.middle.weight.dtype) == (torch.float32, torch.bfloat16)
    assert module(torch.zeros(2, 3, dtype=torch.int64)).dtype == torch.float32
    assert flat.template.size == 160


@pytest.mark.parametrize("method", ["fedavg", "deltamask"])
def test_a_run(method: str) -> None:
    module = Small().bfloat16()
    tokens = torch.randint(0, 20, (60, 5))
    data = (tokens, tokens[:, 0] % 3)
    result = subbit.fine_tune(module, [data, data], data, method=method, select="*linear1.weight", rounds=2)
    trained = dict(result.module.named_parameters())
    assert trained["encoder.linear1.weight"].dtype == torch.float32
    assert torch.equal(trained["embedding.weight"], module.embedding.weight)
    assert module.encoder.linear1.weight.dtype == torch.bfloat16


def test_what_cannot_be_mixed_is_said_before_the_start() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = functional.linear(inputs.to(self.head.weight.dtype), self.layer.weight)
            logits: Tensor = self.head(hidden)
            return logits

    data = (torch.randn(6, 4), torch.arange(6) % 3)
    with pytest.raises(ModelError, match=r"bfloat16 and float32.*\.float\(\)"):
        subbit.fine_tune(Direct().bfloat16(), [data], data, method="fedavg", select="layer.weight", rounds=1)


@pytest.mark.parametrize("tuning", ["lora", "adapter", "prompt", "bias"])
def test_added_modules_are_float32(tuning: str, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    module = BertForSequenceClassification(BertConfig(vocab_size=40, **sizes)).bfloat16().eval()
    tokens = torch.randint(1, 40, (3, 7))
    flat = FlatModel(module, tune(module, tuning, 7))
    flat.evaluation_mode()
    flat.backward(functional.cross_entropy(module(tokens).logits.float(), torch.tensor([0, 1, 1])))
    assert flat.gradient.any()
    if tuning == "lora":
        save_adapter(module, tmp_path)

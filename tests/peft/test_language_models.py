"""Language models of transformers: blocks, ties, LoRA where peft would put it, and runs that learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import peft
import subbit
from subbit.core.errors import ModelError
from subbit.models import FlatModel, find_blocks, find_head, select_parameters
from subbit.models.find_prefix import find_prefix
from subbit.peft.lora import save_adapter
from tests.peft.language_models import FAMILIES, language_model, sentences
from tests.peft.tunings import tune
from tests.problems import conv_net

TARGETS = {"gpt2": ("c_attn",), "llama": ("q_proj", "v_proj"), "llama-tied": ("q_proj", "v_proj")}


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_and_ties(family: str) -> None:
    model = language_model(family)
    blocks, tied = ("transformer.h", True) if family == "gpt2" else ("model.layers", family == "llama-tied")
    assert find_blocks(model) == (blocks, 3)
    assert find_head(model) == "lm_head"
    names = select_parameters(model, "last 2 blocks")
    assert names
    assert all(name.startswith((f"{blocks}.1.", f"{blocks}.2.")) for name in names)
    everything = select_parameters(model, "all")
    assert everything == [name for name, _ in model.named_parameters()]
    assert ("lm_head.weight" in everything) != tied
    embedding = "transformer.wte.weight" if family == "gpt2" else "model.embed_tokens.weight"
    assert select_parameters(model, "head") == [embedding if tied else "lm_head.weight"]
    assert FlatModel(model, "all").template.size == sum(value.numel() for value in model.parameters())


@pytest.mark.parametrize(("family", "frozen"), [("llama", True), ("llama-tied", False)])
def test_embeddings_that_are_trained_as_outputs_are_not_in_the_frozen_prefix(family: str, frozen: bool) -> None:
    model = language_model(family)
    model.config.use_cache = False
    flat = FlatModel(model, "lm_head.weight + last 1 block")
    prefix = find_prefix(flat, (), sentences(4)["input_ids"])
    embedding = model.get_input_embeddings()
    assert (prefix is not None and any(call.module is embedding for call in prefix.skipped)) == frozen


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_is_where_peft_puts_it_and_plain_peft_loads_it(family: str, tmp_path: Path) -> None:
    model, batch = language_model(family).eval(), sentences(3)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        before = model(**inputs).logits
    flat = FlatModel(model, tune(model, "lora", 7, lora_rank=2))
    changed = {name.split(".lora_")[0].rpartition(".")[2] for name in flat.template.names}
    assert changed == set(TARGETS[family])
    assert all(".lora_" in name for name in flat.template.names), "the output layer stays as it is"
    expected = peft.get_peft_model(language_model(family), peft.LoraConfig(r=2, task_type="CAUSAL_LM"))
    assert flat.template.size == sum(value.numel() for value in expected.parameters() if value.requires_grad)
    flat.evaluation_mode()
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, before)
        flat.weights.add_(torch.randn(flat.weights.shape, generator=torch.Generator().manual_seed(0)), alpha=0.3)
        after = model(**inputs).logits
    assert not torch.allclose(after, before)
    save_adapter(model, tmp_path)
    assert not (tmp_path / "head.safetensors").exists()
    loaded: Any = peft.PeftModel.from_pretrained(language_model(family), str(tmp_path)).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs).logits, after, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tuning", ["adapter", "bias"])
def test_other_tunings_leave_the_output_layer_alone(tuning: str) -> None:
    model = language_model("gpt2")
    names = select_parameters(model, tune(model, tuning, 7))
    assert names
    assert not any(name.endswith("wte.weight") for name in names)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("tuning", ["prompt", "prefix"])
def test_a_text_with_prompts_knows_neither_its_future_nor_its_batch(tuning: str, family: str) -> None:
    """transformers leaves the mask out where no text of a batch has padding."""
    model = language_model(family)
    tune(model, tuning, 7, prompt_tokens=4)
    model.eval()
    tokens = sentences(2)["input_ids"].clamp(min=3)
    whole, padded = torch.ones_like(tokens), torch.ones_like(tokens)
    padded[1, 6:] = 0
    with torch.no_grad():
        alone = model(input_ids=tokens, attention_mask=whole).logits
        beside = model(input_ids=tokens, attention_mask=padded).logits
        torch.testing.assert_close(beside[0], alone[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(beside[1, :6], alone[1, :6], rtol=0, atol=1e-5)
        changed = tokens.clone()
        changed[:, 6:] = 5
        other = model(input_ids=changed, attention_mask=whole).logits
        torch.testing.assert_close(other[:, :6], alone[:, :6], rtol=0, atol=1e-5)
        next(value for name, value in model.named_parameters() if name.endswith("prompt.tokens")).normal_(std=5)
        assert not torch.allclose(model(input_ids=tokens, attention_mask=whole).logits, alone, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gpt2", {"method": "fedpeft", "tuning": "lora", "lora_rank": 8, "learning_rate": 0.03}),
        ("llama", {"method": "fedpeft", "tuning": "lora", "lora_targets": "q_proj,down_proj", "learning_rate": 0.03}),
        ("llama-tied", {"method": "fedavg", "select": "all", "optimizer": "adam", "learning_rate": 0.01}),
        ("llama", {"method": "fedpeft", "tuning": "prompt", "prompt_tokens": 4, "learning_rate": 0.1, "epochs": 4}),
        ("llama", {"method": "deltamask", "select": "last 2 blocks: weights", "learning_rate": 0.3, "epochs": 8}),
        ("gpt2", {"method": "fedpm", "select": "last 2 blocks: weights", "learning_rate": 0.3, "epochs": 8}),
    ],
)
def test_perplexity_falls(family: str, settings: dict[str, Any]) -> None:
    model = language_model(family)
    result = subbit.fine_tune(
        model, [sentences(48, seed) for seed in (1, 2)], sentences(32, 9), objective="language", rounds=4, **settings
    )
    assert result.score_name == "perplexity"
    assert (
        result.score
        < (0.97 if settings["method"] == "fedavg" or settings.get("tuning") == "lora" else 0.999) * result.score_before
    )
    if family == "llama-tied":
        trained = result.module
        assert trained.lm_head.weight is trained.model.embed_tokens.weight  # type: ignore[union-attr]
        assert result.parameters == sum(value.numel() for value in model.parameters())


def test_half_precision() -> None:
    model = language_model("llama").bfloat16()
    result = subbit.fine_tune(
        model,
        [sentences(48, seed) for seed in (1, 2)],
        sentences(32, 9),
        objective="language",
        rounds=2,
        method="fedpeft",
        tuning="lora",
        learning_rate=0.03,
    )
    assert result.score < result.score_before
    types = {str(value.dtype) for name, value in result.module.named_parameters() if "lora_" not in name}
    assert types == {"torch.bfloat16"}


def test_the_vocabulary_as_a_tensor_of_tokens_alone() -> None:
    """Without a dict: padding is then a token like any other, and frozen layers are kept."""
    tokens = sentences(48)["input_ids"]
    data = (tokens, tokens)
    model = language_model("llama")
    options = {"objective": "language", "method": "fedavg", "select": "last 1 block", "rounds": 2}
    kept, whole = (subbit.fine_tune(model, [data], data, cache=cache, **options) for cache in ("exact", "off"))
    assert kept.model_sha256 == whole.model_sha256
    assert kept.score == whole.score < kept.score_before


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layers = nn.ModuleList(nn.ModuleDict({"conv": nn.Conv2d(4, 4, 3, padding=1)}) for _ in range(2))
        self.grouped = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.fc = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.stem(images)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer["conv"](hidden))  # type: ignore[index]
        logits: Tensor = self.fc(self.grouped(hidden).mean((2, 3)))
        return logits


@pytest.mark.parametrize("lora_mean", ["factors", "product"])
def test_lora_on_convolutions(lora_mean: str) -> None:
    module = Residual()
    flat = FlatModel(module, tune(module, "lora", 7, lora_rank=2))
    convolutions = 2 * (3 * 9 + 4) + 2 * 2 * (4 * 9 + 4)
    assert flat.template.size == convolutions + 15
    # A channel is brighter than the others by a standard deviation of the pixels, so that classes are easily told.
    labels = torch.arange(60) % 3
    images = torch.randn(60, 3, 6, 6) + functional.one_hot(labels, 3)[:, :, None, None]
    data = (images, labels)
    result = subbit.fine_tune(
        Residual(),
        [data, data],
        data,
        method="fedpeft",
        tuning="lora",
        lora_mean=lora_mean,
        learning_rate=0.005,
        rounds=6,
        epochs=4,
    )
    assert result.score > result.score_before + 0.1


def test_named_targets() -> None:
    model = language_model("llama")
    names = select_parameters(model, tune(model, "lora", 7, lora_targets="model.layers.0.*.k_proj, down_proj"))
    assert {name.split(".lora_")[0] for name in names} == {
        "model.layers.0.self_attn.k_proj",
        *(f"model.layers.{number}.mlp.down_proj" for number in range(3)),
    }
    top = select_parameters(module := Residual(), tune(module, "lora", 7, lora_targets="stem"))
    assert [name for name in top if "lora" in name] == [f"stem.lora_{x}.default.weight" for x in "AB"]
    with pytest.raises(ModelError, match=r"'querry' matches no layer; needs linear layers.*query"):
        tune(nn.ModuleDict({"query": nn.Linear(2, 2)}), "lora", 7, lora_targets="querry")
    with pytest.raises(ModelError, match="'grouped' is Conv2d; needs linear layers or convolutions without groups"):
        tune(Residual(), "lora", 7, lora_targets="grouped")
    tune(conv_net(), "lora", 7)

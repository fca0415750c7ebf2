"""LoRA is peft's own: what we save, plain peft loads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from subbit.core.errors import ConfigError, ModelError
from subbit.models import FlatModel
from subbit.peft.lora import save_adapter
from tests.peft.families import inputs_for, load_family
from tests.peft.tunings import tune

OPTIONS: dict[str, Any] = {"bottleneck": 3, "prompt_tokens": 4, "lora_rank": 2, "lora_alpha": 4}


@pytest.mark.parametrize("family", ["vit", "clip", "bert"])
def test_plain_peft_loads_what_was_saved(family: str, tmp_path: Path) -> None:
    import transformers
    from safetensors.torch import load_file

    import peft

    network = load_family(family, tmp_path / "base")
    flat = FlatModel(network, tune(network, "lora", 7, **OPTIONS))
    with torch.no_grad():
        flat.weights.add_(torch.randn(flat.weights.shape, generator=torch.Generator().manual_seed(0)), alpha=0.3)
    save_adapter(network, tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 2

    classes = {"vit": "ViTModel", "clip": "CLIPVisionModel", "bert": "BertModel"}
    base = getattr(transformers, classes[family]).from_pretrained(tmp_path / "base")
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    head = nn.Linear(16, 5)
    head.load_state_dict(load_file(tmp_path / "adapter" / "head.safetensors"))
    inputs = inputs_for(family)
    with torch.no_grad():
        prepared = inputs if family == "bert" else network.preprocess(inputs)  # type: ignore[misc]
        output = loaded(prepared)
        features = output.last_hidden_state[:, 0] if family == "vit" else output.pooler_output
        torch.testing.assert_close(head(features), network(inputs), rtol=0, atol=1e-6)
        plain = getattr(transformers, classes[family]).from_pretrained(tmp_path / "base").eval()(prepared)
        assert not torch.allclose(plain.last_hidden_state, output.last_hidden_state)


def test_low_rank_change_of_queries_and_values_alone(tmp_path: Path) -> None:
    """W + (4 / 2) B A, by hand."""
    network = load_family("vit", tmp_path)
    tune(network, "lora", 7, **OPTIONS)
    attention: Any = network.backbone.get_submodule("layers.0.attention")
    for name in ("q_proj", "v_proj"):
        layer = getattr(attention, name)
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        assert (down.shape, up.shape) == ((2, 16), (16, 2))
        assert not up.any()
        nn.init.normal_(up)
        inputs = torch.randn(3, 16)
        with torch.no_grad():
            expected = inputs @ (layer.base_layer.weight + 2 * up @ down).T + layer.base_layer.bias
            torch.testing.assert_close(layer(inputs), expected)
    assert all(type(getattr(attention, name)) is nn.Linear for name in ("k_proj", "o_proj"))


def test_only_what_has_lora_is_saved(tmp_path: Path) -> None:
    network = load_family("vit", tmp_path / "base")
    with pytest.raises(ModelError, match="has no LoRA to save"):
        save_adapter(network, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_family("vit", tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"pip install 'subbit\[peft\]'"):
        tune(network, "lora", 7, **OPTIONS)

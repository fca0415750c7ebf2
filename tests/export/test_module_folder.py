"""Networks as folders: what is written loads, and computes the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subbit
from subbit.cli.entry import app
from subbit.core.errors import ConfigError, FrameError, ModelError, RunFolderError, SubbitError
from subbit.data import Examples
from subbit.export.module_folder import save_module
from subbit.export.onnx_file import export_onnx
from subbit.export.runs import open_run
from subbit.models import load_classifier, model_sha256
from subbit.runtime.networks import Network
from tests.problems import digits_problem

SMALL = ["clients=2", "limit=40", "test_limit=20", "rounds=1"]


def ours(pooling: str = "mean") -> nn.Module:
    return load_classifier("subbit/vit-micro", 10, key=1, pooling=pooling)


def images(count: int) -> Examples:
    generator = torch.Generator().manual_seed(count)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return Examples(pixels, torch.arange(count) % 10)


def tuned(module: nn.Module, **settings: Any) -> Any:
    return subbit.fine_tune(module, [images(12), images(11)], images(10), rounds=1, **settings)


def same(one: nn.Module, other: nn.Module) -> None:
    with torch.no_grad():
        torch.testing.assert_close(one(images(9).tensor), other(images(9).tensor), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"method": "deltamask"}, "transformers"),
        ({"method": "fedpeft", "tuning": "bias"}, "transformers"),
        ({"method": "fedpeft", "tuning": "lora"}, "transformers"),
        ({"method": "fedpeft", "tuning": "adapter"}, "state"),
        ({"method": "fedpeft", "tuning": "prompt"}, "state"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else value,
)
def test_a_folder_is_the_network_whatever_the_method_added(settings: dict[str, str], kind: str, tmp_path: Path) -> None:
    module = ours()
    result = tuned(module, **settings)
    saved = result.save(tmp_path / "folder")
    assert saved.kind == kind
    assert {path.name: path.stat().st_size for path in (tmp_path / "folder").iterdir()} == saved.files
    same(subbit.load_module(tmp_path / "folder", module), result.module)


def test_a_head_on_the_class_token_is_a_classifier_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForImageClassification

    result = tuned(ours("cls"), method="fedavg", select="head")
    assert "ViTForImageClassification" in result.save(tmp_path / "cls").loads
    theirs = AutoModelForImageClassification.from_pretrained(tmp_path / "cls").eval()
    with torch.no_grad():
        found = theirs(**result.module.arguments(images(9).tensor)).logits
        torch.testing.assert_close(found, result.module(images(9).tensor), rtol=0, atol=1e-5)
    same(subbit.load_module(tmp_path / "cls"), result.module)


def test_a_head_on_the_mean_is_a_backbone_and_a_head_and_that_is_said(tmp_path: Path) -> None:
    saved = tuned(ours(), method="fedavg", select="head").save(tmp_path / "mean")
    assert "AutoModel.from_pretrained" in saved.loads
    assert "head.safetensors" in saved.loads
    assert json.loads((tmp_path / "mean" / "config.json").read_text())["architectures"] == ["ViTModel"]


def test_a_model_of_transformers_with_named_inputs(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
    )

    def texts(count: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(count * 6).reshape(count, 6) % 64
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.arange(count) % 2}

    result = subbit.fine_tune(
        BertForSequenceClassification(config), [texts(8), texts(9)], texts(7), method="fedavg", rounds=1
    )
    assert result.save(tmp_path / "bert").kind == "transformers"
    loaded = subbit.load_module(tmp_path / "bert")
    assert model_sha256(loaded) == model_sha256(result.module)
    pytest.importorskip("onnxscript")
    written = export_onnx(result.trained.network, tmp_path / "bert.onnx")
    assert set(written["inputs"]) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("words", [["method=fedavg", "model=mlp"], ["method=bnn", "model=convnet", "head=keep"]])
def test_a_small_network_of_a_run_is_built_by_its_name(words: list[str], tmp_path: Path) -> None:
    app(["run", *words, *SMALL, f"folder={tmp_path}", "name=run"], standalone_mode=False)
    app(["export", str(tmp_path / "run"), "--module", str(tmp_path / "out")], standalone_mode=False)
    same(subbit.load_module(tmp_path / "out"), open_run(tmp_path / "run", primary=True).workplace.module)


def test_a_personal_network_by_client(tmp_path: Path) -> None:
    module = digits_problem().module
    train = [digits_problem().client_data(client) for client in range(2)]
    result = subbit.fine_tune(module, train, digits_problem().test, method="standalone", rounds=1)
    with pytest.raises(ConfigError, match="own: say whose, 0 to 1"):
        result.save(tmp_path / "all")
    result.save(tmp_path / "one", client=1)
    loaded = subbit.load_module(tmp_path / "one", module)
    assert model_sha256(loaded) == model_sha256(result.networks[1])
    assert model_sha256(loaded) != model_sha256(result.networks[0])


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    result = tuned(ours(), method="fedavg", select="head")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="not empty"):
        result.save(tmp_path / "mine")
    with pytest.raises(RunFolderError, match="no folder"):
        result.save(tmp_path / "mine" / "notes.txt")
    with pytest.raises(ConfigError, match="no LoRA"):
        result.save(tmp_path / "new", merge=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat: torch.Tensor = self.layer(inputs.float().reshape(len(inputs), 64))
        return flat


def test_a_module_of_ones_own_needs_itself(tmp_path: Path) -> None:
    result = tuned(Own(), method="fedavg")
    assert "with your own Own" in result.save(tmp_path / "own").loads
    with pytest.raises(ModelError, match="has no name"):
        subbit.load_module(tmp_path / "own")
    with pytest.raises(ModelError, match="does not fit"):
        subbit.load_module(tmp_path / "own", nn.Linear(3, 3))
    same(subbit.load_module(tmp_path / "own", Own()), result.module)
    pytest.importorskip("onnxscript")
    with pytest.raises(ModelError, match=r"Own cannot be traced.*shape\[0\] instead of len"):
        export_onnx(result.trained.network, tmp_path / "own.onnx")
    assert not (tmp_path / "own.onnx").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"kind": "pickle"},
        {"recipe": {"model": "os:system", "model_key": 0, "classes": 10, "input_shape": "1x8x8"}},
        {"recipe": {"model": "mlp", "classes": -1}},
        {"added": {"method": "nothing"}},
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_is_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    network = tuned(Own(), method="fedavg").trained.network
    save_module(network, tmp_path / "own")
    file = tmp_path / "own" / "subbit.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SubbitError, match="has no name" if "os:system" in str(change) else None):
        subbit.load_module(tmp_path / "own", Own() if "added" in change else None)
    file.write_text("[")
    with pytest.raises(FrameError):
        subbit.load_module(tmp_path / "own")


def test_batch_statistics_have_no_onnx_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    network: Network = tuned(Own(), method="fedavg").trained.network
    broken = replace(network, module=nn.Sequential(nn.BatchNorm1d(3).train()))
    with pytest.raises(ConfigError, match="batchnorm=batch"):
        export_onnx(broken, tmp_path / "x.onnx")

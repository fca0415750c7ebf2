"""Numbers of trained parameters, to the last one, and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.cli.params import parameter_counts
from subbit.core.errors import ConfigError, ModelError
from tests.peft.families import load_family, write_family

VIT_B = {
    "full": 85_798_656 + 76_900,
    "head": 768 * 100 + 100,
    "bias": 12 * (3 * 768 + 768 + 4 * 768 + 768 + 2 * 768) + 768 + 768 + 76_900,
    "adapter": 12 * (2 * 768 * 8 + 8 + 768) + 76_900,
    "prompt": 10 * 768 * 12 + 76_900,
    "prefix": 10 * 768 + 76_900,
    "lora": 12 * 2 * 4 * (768 + 768) + 76_900,
}
PRINTED = {
    "bias": 179_812,
    "adapter": 233_668,
    "prompt": 169_060,
    "prefix": 84_580,
    "lora": 224_356,
    "head": 76_900,
    "full": 85_875_556,
}


def test_vit_b_with_100_classes() -> None:
    """Table I of the paper rounds these: .18, .23, .17, .08 (prefix), .22, .08 and 85.88 million."""
    assert VIT_B == PRINTED
    rows = parameter_counts("vit-b16", None, 100, [])
    assert {row["tuning"]: row["trained"] for row in rows} == PRINTED
    assert {row["tuning"]: row["megabytes"] for row in rows}["bias"] == pytest.approx(4 * 179_812 / 1e6)


def test_bert_mini_with_4_classes() -> None:
    """Table X: 12.8K, 31.7K with 30 tokens, 1.0K, 11M.

    A block has biases of 3 x 256 + 256 + 256 + 1024 + 256 + 256 = 2816; one norm of the embeddings and the pooler add
    256 each. The paper's 17.7K of the adapter lie between ours with and without biases, 18,468 and 17,412.
    """
    counted = {row["tuning"]: row["trained"] for row in parameter_counts("bert-mini", None, 4, ["prompt_tokens=30"])}
    assert counted["bias"] == 4 * 2816 + 256 + 256 + 1028 == 12_804
    assert counted["prompt"] == 30 * 256 * 4 + 1028 == 31_748
    assert counted["head"] == 4 * 256 + 4 == 1028
    assert counted["adapter"] == 4 * (2 * 256 * 8 + 8 + 256) + 1028 == 18_468
    assert round(counted["full"] / 1e6) == 11


def test_videomae_with_101_classes() -> None:
    """Table II: 86.30 million, .08 of them the head."""
    [full] = parameter_counts("videomae-b", "full", 101, [])
    assert round(full["trained"] / 1e6, 2) == 86.30
    [head] = parameter_counts("videomae-b", "head", 101, [])
    assert head["trained"] == 768 * 101 + 101


def test_a_folder_needs_its_configuration_alone(tmp_path: Path) -> None:
    write_family("vit", tmp_path)
    expected = sum(parameter.numel() for parameter in load_family("vit", tmp_path).parameters())
    (tmp_path / "model.safetensors").unlink()
    [row] = parameter_counts(str(tmp_path), "full", 5, [])
    assert row["trained"] == row["total"] == expected


def test_the_command() -> None:
    printed = CliRunner().invoke(app, ["params", "vit-b16", "--tuning", "bias", "--classes", "100"])
    assert printed.exit_code == 0
    assert "179,812" in printed.output
    words = ["params", "subbit/vit-micro", "--classes", "10", "--json", "lora_rank=2"]
    rows = json.loads(CliRunner().invoke(app, words).stdout)
    assert [row["tuning"] for row in rows] == ["full", "head", "bias", "adapter", "prompt", "prefix", "lora"]
    assert rows[-1]["trained"] == 8 * 2 * 2 * (96 + 96) + 970


def test_what_cannot_be_counted() -> None:
    with pytest.raises(ModelError, match="no model 'vit-b61': there are vit-b16"):
        parameter_counts("vit-b61", None, 10, [])
    with pytest.raises(ConfigError, match="did you mean 'prompt'"):
        parameter_counts("vit-b16", "promt", 10, [])
    with pytest.raises(ConfigError, match="did you mean 'lora_rank'"):
        parameter_counts("vit-b16", "lora", 10, ["lora_rnk=3"])
    with pytest.raises(ModelError, match="classes=0"):
        parameter_counts("vit-b16", "head", 0, [])

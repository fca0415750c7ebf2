"""Bytes and memory without weights: against formulas derived by hand, real frames and what autograd really keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.cli.params import parameter_counts
from subbit.codecs import Kind, Shared, make_codec, registered_codecs
from subbit.core.errors import ModelError
from subbit.local.optimizers import Adam, Sgd, kept_vectors
from subbit.peft.parameter_counts import count, kept_for_backward
from subbit.peft.weightless import Weightless, weightless
from subbit.wire import HEADER_BYTES
from subbit.wire import lengths as lengths_module
from subbit.wire.channel import Channel, Part, up
from subbit.wire.lengths import frame_length

SMOLLM2_135M = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
LLAMA_1B = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
TINY = {**SMOLLM2_135M, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
TINY |= {"intermediate_size": 96, "vocab_size": 50, "max_position_embeddings": 32}


def written(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "some-model.json"
    path.write_text(json.dumps(config))
    return str(path)


def llama_total(config: dict[str, Any]) -> int:
    """Queries and outputs h x h, keys and values h x kv, three matrices h x f, two norms per block; one norm at the
    end; embeddings, and as much for the output layer if it is not tied to them."""
    h, f = config["hidden_size"], config["intermediate_size"]
    kv = h // config["num_attention_heads"] * config["num_key_value_heads"]
    block = 2 * h * h + 2 * h * kv + 3 * h * f + 2 * h
    embeddings = config["vocab_size"] * h * (1 if config["tie_word_embeddings"] else 2)
    return int(config["num_hidden_layers"] * block + h + embeddings)


def llama_lora(config: dict[str, Any], rank: int) -> int:
    """A and B of the queries, h to h, and of the values, h to kv, in every block; no head."""
    h = config["hidden_size"]
    kv = h // config["num_attention_heads"] * config["num_key_value_heads"]
    return int(config["num_hidden_layers"] * rank * ((h + h) + (h + kv)))


@pytest.mark.parametrize(
    ("config", "total", "lora"),
    [
        (SMOLLM2_135M, 134_515_008, 230_400),
        (LLAMA_1B, 1_100_048_384, 563_200),
        (LLAMA_2_7B, 6_738_415_616, 2_097_152),
    ],
)
def test_llamas(tmp_path: Path, config: dict[str, Any], total: int, lora: int) -> None:
    """The totals are those that the authors publish."""
    assert (llama_total(config), llama_lora(config, 4)) == (total, lora)
    [row] = parameter_counts(written(tmp_path, config), "lora", None, [], codec="eden", length=16)
    assert (row["trained"], row["total"], row["classes"]) == (lora, total + lora, None)
    blocks = lora // 8192
    assert row["up_bytes"] == row["down_bytes"] == HEADER_BYTES + 4 * blocks + lora // 8
    memory = row["memory"]
    assert memory["weights"] == {"float32": 4 * (total + lora), "bfloat16": 2 * (total + lora), "int8": total + lora}
    # Four vectors, the gradient and Adam's two.
    assert memory["trained"] == 7 * 4 * lora
    assert memory["client"]["bfloat16"] == 2 * row["total"] + memory["trained"] + memory["activations_per_example"]


def test_rank_and_targets_count(tmp_path: Path) -> None:
    model = written(tmp_path, LLAMA_1B)
    [row] = parameter_counts(model, "lora", None, ["lora_rank=16"])
    assert row["trained"] == llama_lora(LLAMA_1B, 16)
    [row] = parameter_counts(model, "lora", None, ["lora_targets=o_proj"])
    assert row["trained"] == 22 * 4 * (2048 + 2048)


def test_decoders_are_language_models_and_classifiers_if_asked(tmp_path: Path) -> None:
    model = written(tmp_path, TINY)
    rows = {row["tuning"]: row for row in parameter_counts(model, None, None, [])}
    assert rows["full"]["trained"] == llama_total(TINY)
    assert "bias" not in rows  # It has none.
    [classifier] = parameter_counts(model, "full", 3, [])
    assert (classifier["trained"], classifier["classes"]) == (llama_total(TINY) + 3 * 64 + 3, 3)
    with pytest.raises(ModelError, match="no biases"):
        parameter_counts(model, "bias", None, [])


@pytest.mark.parametrize("size", [1, 9, 1000, 8192, 20_001])
def test_lengths_are_those_of_real_frames(size: int) -> None:
    vector = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    codecs = [make_codec("eden", bits=bits) for bits in (0.1, 0.5, 1, 2.5, 8)]
    codecs += [make_codec("dense", dtype="bfloat16"), make_codec("int8", chunk=100)]
    codecs += [codec() for codec in registered_codecs() if codec.kind is Kind.VECTOR]
    exact = set()
    for codec in codecs:
        frame = Channel(Part("weights", codec, size), bytes(8)).pack(vector, up(3, 7), Shared(size, key=5), 12)
        found = frame_length(codec, size)
        assert found is not None
        if found.how == "exact":
            exact.add(codec.name)
            assert found.bytes == len(frame)
        else:  # Other normal values: nearly as long.
            assert found.how == "encoded"
            assert abs(found.bytes - len(frame)) <= 8 + 0.1 * len(frame)
    assert exact == {"dense", "int8", "eden", "drive", "trellis"}


def test_lengths_beyond_what_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = make_codec("qsgd")
    size = 10 * 8192  # Whole buckets; so has what is encoded.
    whole = frame_length(codec, size)
    monkeypatch.setattr(lengths_module, "MOST_ENCODED", 4 * 8192)
    part = frame_length(codec, size)
    assert whole is not None
    assert part is not None
    assert (whole.how, part.how) == ("encoded", "extrapolated")
    assert part.bytes == pytest.approx(whole.bytes, rel=0.02)
    assert frame_length(codec, 1 << 31) is None


def test_activations_of_two_layers() -> None:
    """The first layer keeps its input, 4 values, which is no parameter; tanh its 8 outputs, the second layer's input;
    the second layer nothing more. All in float32."""
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to("meta")
    network = Weightless(module, {"": torch.empty(1, 4, device="meta")}, "row")
    assert kept_for_backward(network) == 4 * (4 + 8)
    module[0].requires_grad_(False)
    module[1].requires_grad_(False)
    assert kept_for_backward(network) == 4 * 8


def test_activations_are_what_a_real_pass_keeps(tmp_path: Path) -> None:
    """Within a tenth: a real kernel of attention keeps a few numbers more."""
    network = weightless(written(tmp_path, TINY), length=32)
    counted = count(written(tmp_path, TINY), None, lambda module: "all", length=32, activations=True).activations
    module: Any = type(network.module)(network.module.config)
    own = {tensor.untyped_storage()._cdata for tensor in (*module.parameters(), *module.buffers())}
    kept: dict[int, Any] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    tokens = torch.zeros(1, 32, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        module(input_ids=tokens, labels=tokens, attention_mask=torch.ones(1, 1, 32, 32, dtype=torch.bool))
    assert counted == pytest.approx(sum(storage.nbytes() for storage in kept.values()), rel=0.1)


def test_vectors_of_optimisers() -> None:
    assert kept_vectors(Adam()) == 2
    assert kept_vectors(Sgd()) == 1
    assert kept_vectors(Sgd(momentum=0.0)) == 0


def test_the_command(tmp_path: Path) -> None:
    words = ["params", written(tmp_path, TINY), "--tuning", "lora", "--codec", "eden", "--length", "32"]
    printed = CliRunner().invoke(app, words, env={"COLUMNS": "240"})
    assert printed.exit_code == 0
    assert "language model" in printed.output
    lora = llama_lora(TINY, 4)
    assert f"{HEADER_BYTES + 4 + lora // 8:,}" in printed.output
    assert "text of 32 tokens" in printed.output
    [row] = json.loads(CliRunner().invoke(app, [*words, "--json", "bits=2", "--examples", "3"]).stdout)
    assert row["up_bytes"] == row["down_bytes"] == HEADER_BYTES + 4 + 2 * lora // 8
    used = row["memory"]
    assert used["client"]["int8"] == row["total"] + 28 * lora + 3 * used["activations_per_example"]
    [row] = json.loads(CliRunner().invoke(app, [*words, "--json", "down_codec=dense"]).stdout)
    assert (row["up_bytes"], row["down_bytes"]) == (HEADER_BYTES + 4 + lora // 8, HEADER_BYTES + 4 * lora)


def test_configurations_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="names no model_type"):
        parameter_counts(written(tmp_path, {"hidden_size": 5}), "lora", None, [])
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        parameter_counts(str(tmp_path / "broken.json"), "lora", None, [])
    with pytest.raises(ModelError, match="at most 32 tokens"):
        parameter_counts(written(tmp_path, TINY), "lora", None, [], codec="eden", length=33)

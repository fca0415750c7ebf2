"""What the tunings add: nothing changes at the start where nothing should, and the mathematics is the papers'."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.conformance.method_laws import frozen_digest
from subbit.core.errors import ModelError
from subbit.models import FlatModel, select_parameters
from subbit.models.load_model import load_classifier
from tests.peft.families import FAMILIES, inputs_for, load_family
from tests.peft.tunings import tune
from tests.problems import conv_net, mlp

OPTIONS: dict[str, Any] = {"bottleneck": 3, "prompt_tokens": 4, "lora_rank": 2, "lora_alpha": 4}
ADDED: tuple[str, ...] = ("adapter", "prompt", "prefix", "lora")
BLOCKS, WIDTH = 3, 16
HEAD = 16 * 5 + 5


def added_size(tuning: str) -> int:
    """By hand: adapters 2 x 16 x 3 + 3 + 16, prompts 4 x 16, LoRA two layers of 2 x (16 + 16), in each of 3 blocks."""
    return {"adapter": BLOCKS * 115, "prompt": BLOCKS * 64, "prefix": 64, "lora": BLOCKS * 2 * 64}[tuning]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tuning", ADDED)
def test_every_family_takes_every_tuning(family: str, tuning: str, tmp_path: Path) -> None:
    network, inputs = load_family(family, tmp_path), inputs_for(family)
    with torch.no_grad():
        before = network(inputs)
    state = torch.get_rng_state()
    selection = tune(network, tuning, 7, **OPTIONS)
    assert torch.equal(torch.get_rng_state(), state)
    flat = FlatModel(network, selection)
    assert flat.template.size == added_size(tuning) + HEAD
    flat.evaluation_mode()
    with torch.no_grad():
        after = network(inputs)
    # Zeros at the end of an adapter and of LoRA change no bit; a prompt is there from the start.
    assert torch.equal(after, before) == (tuning in ("adapter", "lora"))
    frozen = frozen_digest(flat)
    functional.cross_entropy(network(inputs), torch.tensor([0, 1])).backward()
    views = dict(zip(flat.template.names, flat.template.views(flat.gradient), strict=True))
    idle = [name for name, gradient in views.items() if not bool(gradient.any())]
    # The gradient of what stands before a zero is zero, and only that.
    assert all((".down." in name) if tuning == "adapter" else ("lora_A" in name) for name in idle), idle
    with torch.no_grad():
        flat.weights.sub_(flat.gradient, alpha=0.5)
        assert not torch.equal(network(inputs), after)
    assert frozen_digest(flat) == frozen


@pytest.mark.parametrize("tuning", ADDED)
def test_added_values_come_from_the_key(tuning: str, tmp_path: Path) -> None:
    weights = []
    for key in (7, 7, 8):
        network = load_family("vit", tmp_path)
        weights.append(FlatModel(network, tune(network, tuning, key, **OPTIONS)).weights)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_adapter_stands_on_the_feed_forward_output_before_the_residual_sum(tmp_path: Path) -> None:
    network = load_family("vit", tmp_path)
    selection = tune(network, "adapter", 7, **OPTIONS)
    block: Any = network.backbone.get_submodule("layers.1")
    adapter: Any = block.mlp.fc2.adapter
    assert {"down.weight", "down.bias", "up.weight", "up.bias"} == set(dict(adapter.named_parameters()))
    assert len(select_parameters(network, selection)) == 4 * BLOCKS + 2
    nn.init.normal_(adapter.up.weight)
    nn.init.normal_(adapter.up.bias)
    hidden = torch.randn(2, 5, WIDTH)
    with torch.no_grad():
        attended = hidden + block.attention(block.layernorm_before(hidden))[0]
        inner = functional.gelu(block.mlp.fc1(block.layernorm_after(attended)))
        fed = functional.linear(inner, block.mlp.fc2.weight, block.mlp.fc2.bias)
        squeezed = functional.gelu(fed @ adapter.down.weight.T + adapter.down.bias)
        expected = attended + fed + squeezed @ adapter.up.weight.T + adapter.up.bias
        torch.testing.assert_close(block(hidden), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_adapter_behind_the_residual_sum(family: str, tmp_path: Path) -> None:
    """Equation 6 of paper 003: a(phi(h)), phi being the whole block. As many parameters as inside, same start."""
    network, inputs = load_family(family, tmp_path), inputs_for(family)
    with torch.no_grad():
        before = network(inputs)
    seen: list[tuple[Tensor, Tensor]] = []
    blocks = [module for name, module in network.named_modules() if name.endswith(".1") and "layer" in name]
    block: Any = blocks[0]
    handle = block.register_forward_hook(lambda _, given, output: seen.append((given[0], output)))
    network(inputs)
    handle.remove()
    (hidden, output) = seen[0]
    plain = output if isinstance(output, Tensor) else output[0]
    selection = tune(network, "adapter", 7, **OPTIONS, adapter_place="after-residual")
    flat = FlatModel(network, selection)
    assert flat.template.size == added_size("adapter") + HEAD
    flat.evaluation_mode()
    with torch.no_grad():
        assert torch.equal(network(inputs), before)
        adapter = block.adapter
        nn.init.normal_(adapter.up.weight)
        nn.init.normal_(adapter.up.bias)
        squeezed = functional.gelu(plain @ adapter.down.weight.T + adapter.down.bias)
        expected = plain + squeezed @ adapter.up.weight.T + adapter.up.bias
        handle = block.register_forward_hook(lambda _, given, output: seen.append((given[0], output)))
        network(inputs)
    found = seen[1][1] if isinstance(seen[1][1], Tensor) else seen[1][1][0]
    assert torch.equal(seen[1][0], hidden)  # Nothing has changed before this block.
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("tuning", ["prompt", "prefix"])
def test_prompts_against_the_loop_of_the_paper(tuning: str, tmp_path: Path) -> None:
    """Deep: new tokens before each block, dropped after it. Shallow: once, dropped after the last block."""
    plain, tuned = load_family("vit", tmp_path), load_family("vit", tmp_path)
    tune(tuned, tuning, 7, **OPTIONS)
    prompts = [parameter for name, parameter in tuned.named_parameters() if name.endswith("prompt.tokens")]
    assert len(prompts) == (BLOCKS if tuning == "prompt" else 1)
    bound = math.sqrt(6 / (3 * 8 * 8 + WIDTH))
    assert all(0.8 * bound < float(prompt.detach().abs().max()) <= bound for prompt in prompts)
    backbone: Any = plain.backbone
    images = inputs_for("vit")
    with torch.no_grad():
        hidden = backbone.embeddings(plain.preprocess(images))  # type: ignore[misc]
        for number, block in enumerate(backbone.layers):
            if tuning == "prompt" or number == 0:
                hidden = torch.cat([prompts[number].expand(2, -1, -1), hidden], dim=1)
            hidden = block(hidden)
            if tuning == "prompt" or number == BLOCKS - 1:
                hidden = hidden[:, 4:]
        expected = plain.head(backbone.layernorm(hidden)[:, 0])
        torch.testing.assert_close(tuned(images), expected)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("tuning", ["prompt", "prefix"])
def test_texts_with_prompts_do_not_see_their_padding(tuning: str, attention: str, tmp_path: Path) -> None:
    network = load_family("bert", tmp_path)
    network.backbone.set_attn_implementation(attention)  # type: ignore[operator]
    text, other = inputs_for("bert")[:1, :5], inputs_for("bert")[1:]
    tune(network, tuning, 7, **OPTIONS)
    with torch.no_grad():
        alone = network(text)
        padded = torch.cat([functional.pad(text, (0, 2)), other])
        torch.testing.assert_close(network(padded)[:1], alone)
        # The prompt itself is seen.
        next(value for name, value in network.named_parameters() if name.endswith("prompt.tokens")).add_(1.0)
        assert not torch.allclose(network(padded)[:1], alone)


@pytest.mark.parametrize("family", FAMILIES)
def test_biases_are_all_biases_and_nothing_else(family: str, tmp_path: Path) -> None:
    network = load_family(family, tmp_path)
    names = set(select_parameters(network, tune(network, "bias", 7, **OPTIONS)))
    everything = {name for name, _ in network.named_parameters()}
    assert names == {name for name in everything if name.endswith("bias")} | {"head.weight"}
    norms = [name for name, layer in network.named_modules() if isinstance(layer, nn.LayerNorm)]
    assert all(f"{name}.bias" in names and f"{name}.weight" not in names for name in norms)
    patches = [name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d | nn.Conv3d)]
    assert all(f"{name}.bias" in names for name in patches if network.get_submodule(name).bias is not None)


def test_biases_of_recurrent_layers() -> None:
    network = load_classifier("char-lstm", 5, key=0, input_shape=(7,))
    names = select_parameters(network, tune(network, "bias", 7, **OPTIONS))
    assert {"lstm.bias_ih_l0", "lstm.bias_hh_l1", "head.bias", "head.weight"} <= set(names)
    assert "lstm.weight_ih_l0" not in names
    with pytest.raises(ModelError, match="has no biases"):
        tune(nn.Sequential(nn.Linear(2, 2, bias=False)), "bias", 7, **OPTIONS)


class Pairs(nn.Module):
    """Blocks, but no transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Linear(4, 2)


@pytest.mark.parametrize("tuning", ADDED)
def test_what_is_no_transformer_is_refused(tuning: str) -> None:
    for module in (mlp(), *([] if tuning == "lora" else [conv_net()])):
        with pytest.raises(ModelError, match="no blocks"):
            tune(module, tuning, 7, **OPTIONS)
    with pytest.raises(ModelError, match=f"tuning={tuning} needs a transformer: Linear, of which Pairs is built"):
        tune(Pairs(), tuning, 7, **OPTIONS)


class Encoder(nn.Module):
    """Layers of torch itself."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(hidden)[:, 0])
        return logits


def test_transformers_of_torch() -> None:
    hidden = torch.randn(2, 6, 16)
    network = Encoder(batch_first=True).eval()
    with torch.no_grad():
        before = network(hidden)
        tune(network, "adapter", 7, **OPTIONS)
        torch.testing.assert_close(network(hidden), before)
        tune(network, "prompt", 7, **OPTIONS)
        assert not torch.allclose(network(hidden), before)
    with pytest.raises(ModelError, match=r"prompts need \[n, tokens, width\]"):
        tune(Encoder(batch_first=False), "prefix", 7, **OPTIONS)
    with pytest.raises(ModelError, match="no linear layers for queries and values"):
        tune(Encoder(batch_first=True), "lora", 7, **OPTIONS)

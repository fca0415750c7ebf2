"""The frozen prefix: found where there is one, never where skipping it would change anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subbit.core.randomness import torch_generator
from subbit.models.find_prefix import find_prefix
from subbit.models.flat import FlatModel
from subbit.models.prefix import Prefix

WIDTH = 6


def inputs(examples: int = 5, *shape: int) -> Tensor:
    return torch.randn(examples, *(shape or (WIDTH,)), generator=torch_generator(1))


def found(module: nn.Module, selection: str, data: Tensor | None = None, batchnorm: str = "frozen") -> Prefix | None:
    return find_prefix(FlatModel(module, selection, batchnorm), (), inputs() if data is None else data)


def name_of_cut(prefix: Prefix | None) -> str | None:
    return None if prefix is None else {module: name for name, module in prefix.module.named_modules()}[prefix.cut]


def check_equal(prefix: Prefix, data: Tensor) -> None:
    """Outputs and gradients without the prefix are those of the whole module."""
    prefix.module.train()
    assert prefix.capture(data).shape == (len(data), prefix.width)
    for values in (data, data[:2], data[:1]):
        gradients = []
        for outputs in (prefix.module(values), prefix.outputs(values, prefix.capture(values))):
            tensor = outputs if isinstance(outputs, Tensor) else outputs.logits
            trained = [parameter for parameter in prefix.module.parameters() if parameter.requires_grad]
            gradients.append([tensor, *torch.autograd.grad(tensor.square().sum(), trained, allow_unused=True)])
        for one, two in zip(*gradients, strict=True):
            assert (one is None and two is None) or torch.equal(one, two)


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3))


@pytest.mark.parametrize(("selection", "cut"), [("2.weight", "2"), ("4.*", "4"), ("0.*", None), ("all", None)])
def test_a_sequence_is_cut_at_its_first_trained_layer(selection: str, cut: str | None) -> None:
    prefix = found(perceptron(), selection)
    assert name_of_cut(prefix) == cut
    if prefix is not None:
        check_equal(prefix, inputs())


def test_only_the_calls_in_front_are_left_out() -> None:
    prefix = found(perceptron(), "2.weight")
    assert prefix is not None
    called: list[str] = []
    for name, layer in prefix.module.named_children():
        layer.register_forward_hook(lambda *_, name=name: called.append(name))
    kept = prefix.capture(inputs())
    assert called == ["0", "1"]
    called.clear()
    prefix.module[0].weight.data.fill_(torch.nan)  # type: ignore[index]  # It is not used.
    assert torch.isfinite(prefix.outputs(inputs(), kept)).all()
    prefix.module(inputs())
    assert "forward" not in vars(prefix.module[0])  # type: ignore[index]  # Everything is as before.


class Around(nn.Module):
    """A value goes around the middle layer, in blocks or as a long skip connection."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.activation, self.way = nn.Tanh(), way

    def forward(self, values: Tensor) -> Tensor:
        early = self.activation(self.first(values))
        if self.way == "trained early":
            early = early + self.last.bias.sum()
        late = self.activation(self.second(early))
        if self.way == "skip":
            late = late + early
        if self.way == "raw":
            late = late + values
        if self.way == "batch":
            late = late - late.mean(0)
        outputs: Tensor = self.last(late)
        return outputs


@pytest.mark.parametrize(
    ("way", "selection", "cut"),
    [
        ("plain", "second.*", "second"),
        ("plain", "last.*", "last"),
        ("skip", "second.*", None),  # `early` is needed behind the cut.
        ("skip", "last.*", "last"),
        ("raw", "second.*", "second"),  # The inputs themselves are at hand.
        ("batch", "last.*", None),  # What enters the last layer depends on the other examples.
        ("trained early", "last.*", None),  # The first layers use a trained parameter.
    ],
)
def test_values_that_go_around_the_cut(way: str, selection: str, cut: str | None) -> None:
    prefix = found(Around(way), selection)
    assert name_of_cut(prefix) == cut
    if prefix is not None:
        check_equal(prefix, inputs())


def normalised(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize(
    ("norm", "batchnorm", "cut"),
    [
        (nn.BatchNorm2d(4), "frozen", "4"),
        (nn.BatchNorm2d(4), "batch", "1"),  # Only the convolution in front of the norm is the same in every step.
        (nn.BatchNorm2d(4), "average", "1"),
        (nn.Dropout(0.5), "frozen", None),
        (nn.Dropout(0.0), "frozen", "4"),
        (nn.GroupNorm(2, 4), "frozen", "4"),
    ],
)
def test_norms_and_dropout(norm: nn.Module, batchnorm: str, cut: str | None) -> None:
    data = inputs(5, 1, 6, 6)
    prefix = found(normalised(norm), "4.*", data, batchnorm)
    assert name_of_cut(prefix) == cut
    if prefix is not None and batchnorm == "frozen":
        prefix.module.eval()
        kept = prefix.capture(data)
        assert torch.equal(prefix.module(data), prefix.outputs(data, kept))


def test_a_layer_whose_weights_its_parent_uses() -> None:
    """`nn.MultiheadAttention` never calls its `out_proj`."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, values: Tensor) -> Tensor:
            values = self.before(values)
            outputs: Tensor = self.attention(values, values, values, need_weights=False)[0]
            return outputs

    data = inputs(5, 3, 4)
    prefix = found(Attention(), "attention.out_proj.*", data)
    assert name_of_cut(prefix) == "attention"
    assert prefix is not None
    check_equal(prefix, data)


def transformers_model(kind: str) -> tuple[nn.Module, Tensor]:
    import transformers

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_labels": 3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "vit":
            config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_channels=1)
            return transformers.ViTForImageClassification(config), inputs(5, 1, 8, 8)
        words = torch.randint(1, 50, (5, 7), generator=torch_generator(2))
        if kind == "bert":
            config = transformers.BertConfig(
                **sizes, vocab_size=50, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
            )
            return transformers.BertForSequenceClassification(config), words
        config = transformers.LlamaConfig(**sizes, vocab_size=50, num_key_value_heads=2, pad_token_id=0)
        return transformers.LlamaForSequenceClassification(config), words


@pytest.mark.parametrize(
    ("kind", "selection", "cut"),
    [
        ("vit", "last 1 blocks: weights", "vit.layers.2"),
        ("vit", "classifier.*", "classifier"),
        ("bert", "last 2 blocks: weights", "bert.encoder.layer.1.attention"),
        ("bert", "classifier.*", "classifier"),
        ("llama", "last 1 blocks: weights", "model.layers.2"),
        ("llama", "score.*", "score"),
    ],
)
def test_models_of_transformers(kind: str, selection: str, cut: str) -> None:
    module, data = transformers_model(kind)
    prefix = found(module, selection, data)
    assert name_of_cut(prefix) == cut
    assert prefix is not None
    check_equal(prefix, data)


def test_a_recurrent_network_in_front() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.memory, self.head = nn.Embedding(9, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 9)

        def forward(self, tokens: Tensor) -> Tensor:
            outputs: Tensor = self.head(self.memory(self.words(tokens))[0][:, -1])
            return outputs

    data = torch.randint(0, 9, (5, 4), generator=torch_generator(3))
    prefix = found(Recurrent(), "head.*", data)
    assert name_of_cut(prefix) == "head"
    assert prefix is not None
    check_equal(prefix, data)  # Its inputs are not contiguous: the last of several times.
    assert found(Recurrent(), "memory.*", data) is None  # Only a table in front: not worth it.


def test_too_few_examples_to_look_at() -> None:
    assert found(perceptron(), "4.*", inputs(2)) is None

"""Shrinking: by hand, by a law over random masks, and on networks that it must leave alone."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator, torch_randomness
from subbit.export.links import Structure, find_links
from subbit.export.shrink import Shrunk, shrink, shrink_traced
from subbit.models import load_classifier
from tests.problems import conv_net, mlp

TOLERANCE = 1e-5


def images(count: int = 4, side: int = 8, key: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, 1, side, side), dtype=torch.uint8, generator=torch_generator(key))


def same_outputs(dense: nn.Module, shrunk: Shrunk, inputs: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(shrunk.module(inputs), dense(inputs), rtol=TOLERANCE, atol=TOLERANCE)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def test_a_worked_example() -> None:
    """Three hidden units: one constant, one unread, one alive.

    Unit 0 has no weights and bias 2, so it is relu(2) = 2 for every input: with a weight of 3 to the output it adds 6
    to a bias of 1. Unit 1 has weights, but the output does not read it. Unit 2 stays: w = 5, and the output reads it by
    7.
    Of the two inputs unit 2 reads the second alone, which is half of them: the layer picks it. What is left is
    relu(5 x_2 + 0.5) * 7 + 7.
    """
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    network[0].weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 5.0]]))
    network[0].bias.copy_(torch.tensor([2.0, 1.0, 0.5]))
    network[2].weight.copy_(torch.tensor([[3.0, 0.0, 7.0]]))
    network[2].bias.copy_(torch.tensor([1.0]))
    shrunk = shrink(network, torch.randn(2, 2))
    assert shrunk.widths == {"0": (3, 1)}
    assert shrunk.inputs == {"0": (2, 1)}
    assert shrunk.module[0].weight.tolist() == [[5.0]]
    assert shrunk.module[0].columns.tolist() == [1]
    assert shrunk.module[2].weight.tolist() == [[7.0]]
    assert shrunk.module[2].bias.tolist() == [7.0]
    same_outputs(network, shrunk, torch.randn(50, 2))
    assert network[0].weight.shape == (3, 2)


@torch.no_grad()
def test_what_goes_takes_others_with_it() -> None:
    """A chain 4-4-4-2 where the last hidden unit alone is read: one unit of each layer is left behind it."""
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    network[4].weight[:, :3] = 0
    network[2].weight[3, 1:] = 0
    shrunk = shrink(network, torch.randn(2, 4))
    assert shrunk.widths == {"0": (4, 1), "2": (4, 1)}
    same_outputs(network, shrunk, torch.randn(50, 4))


@torch.no_grad()
def test_constant_maps_before_a_padded_convolution_become_one() -> None:
    """Two filters without weights give maps of 1 and of 2; the next convolution pads with zeros, so at the border they
    are no bias. One of them goes: the other, of value 2, gets its weights plus half of those of the first.
    """
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)).eval()
    network[0].weight[:3] = 0
    network[0].bias.copy_(torch.tensor([1.0, 2.0, -1.0, 0.3]))
    expected = network[2].weight[:, 1] + network[2].weight[:, 0] / 2
    shrunk = shrink(network, torch.randn(2, 1, 6, 6), alignment=1)
    assert shrunk.widths == {"0": (4, 2)}  # The map of relu(-1) = 0 goes without a trace.
    torch.testing.assert_close(shrunk.module[2].weight[:, 0], expected)
    same_outputs(network, shrunk, torch.randn(9, 1, 6, 6))


@torch.no_grad()
def test_a_bias_is_made_where_there_is_none() -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.ReLU(),
        nn.Conv2d(3, 2, 3, bias=False),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 2),
    ).eval()
    network[0].weight[0] = 0
    network[0].bias[0] = 0.7
    shrunk = shrink(network, torch.randn(2, 1, 8, 8), alignment=1)
    assert shrunk.widths == {"0": (3, 2)}
    assert shrunk.module[2].bias is not None
    same_outputs(network, shrunk, torch.randn(9, 1, 8, 8))


@torch.no_grad()
def test_an_empty_layer_keeps_one_unit() -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).eval()
    network[0].weight.zero_()
    shrunk = shrink(network, torch.randn(2, 3))
    assert shrunk.widths == {"0": (5, 1)}
    same_outputs(network, shrunk, torch.randn(5, 3))


@torch.no_grad()
def test_filters_go_by_fours() -> None:
    """Of 16 filters 5 have weights and 11 are maps of zero: 8 stay, 3 of which do nothing. Of 6, 2 do: 4 stay."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)
    ).eval()
    network[0].weight[5:] = 0
    network[0].bias[5:] = -1
    network[2].weight[2:] = 0
    shrunk = shrink(network, torch.randn(2, 1, 8, 8))
    assert shrunk.widths == {"0": (16, 8), "2": (6, 4)}
    same_outputs(network, shrunk, torch.randn(9, 1, 8, 8))


# The law: whatever groups a mask empties, the outputs stay.


def _padded() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3, padding=1),
        nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(20, 7), nn.BatchNorm1d(7), nn.LeakyReLU(), nn.Linear(7, 3),
    )  # fmt: skip


def _unpadded() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.SiLU(inplace=True), nn.Dropout(0.5), nn.Conv2d(6, 4, 2),
        nn.ELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def _small(name: str) -> Callable[[], nn.Module]:
    return lambda: load_classifier(name, 10, key=5, input_shape=(1, 8, 8))


LAW = {
    "padded": _padded,
    "unpadded": _unpadded,
    "mlp": mlp,
    "conv": conv_net,
    "convnet": _small("convnet"),
    "large": _small("mlp"),
}


@pytest.fixture(scope="module")
def traced() -> dict[str, tuple[nn.Module, Structure, Tensor]]:
    found = {}
    for name, make in LAW.items():
        with torch_randomness(11):
            network = make().eval()
            for norm in network.modules():
                if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                    norm.running_mean.normal_()
                    norm.running_var.uniform_(0.5, 2)
                    nn.init.normal_(norm.weight)
                    nn.init.normal_(norm.bias)
        inputs = images(6) if name in ("mlp", "conv", "convnet", "large") else torch.randn(6, 1, 8, 8)
        found[name] = (network, find_links(network, inputs), inputs)
    return found


@pytest.mark.parametrize("name", LAW)
@given(data=st.data())
@torch.no_grad()
def test_any_mask_over_groups_leaves_the_outputs(
    traced: dict[str, tuple[nn.Module, Structure, Tensor]], name: str, data: st.DataObject
) -> None:
    network, structure, inputs = traced[name]
    masked = copy.deepcopy(network)
    generator = torch_generator(data.draw(st.integers(0, 1 << 32)))
    share = data.draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
    for parameter in masked.parameters():
        if parameter.dim() >= 2:
            rows = torch.rand(parameter.shape[0], generator=generator) >= share
            columns = torch.rand(parameter.shape[1], generator=generator) >= share
            parameter.mul_((rows[:, None] & columns).view(*parameter.shape[:2], *[1] * (parameter.dim() - 2)))
    alignment = data.draw(st.sampled_from([1, 4]))
    shrunk = shrink_traced(masked, structure, alignment)
    same_outputs(masked, shrunk, inputs)
    if share == 1.0:
        assert all(after in (1, alignment) for _, after in shrunk.widths.values())
    if share == 0.0:
        assert parameters(shrunk.module) == parameters(network)
    again = shrink_traced(shrunk.module, structure, alignment)
    assert not again.widths


@torch.no_grad()
def test_the_networks_of_the_library_are_linked_from_end_to_end() -> None:
    for name, inner in (("mlp", 2), ("conv4", 6), ("convnet", 3)):
        network = load_classifier(name, 10, key=5, input_shape=(1, 8, 8)).eval()
        structure = find_links(network, images())
        assert len(structure.links) == inner, name
        assert structure.ends == {"head": "its output is the network's"}
        for link in structure.links:
            network.get_submodule(link.producer).weight[::2] = 0
        shrunk = shrink_traced(network, structure)
        assert len(shrunk.widths) == inner
        same_outputs(network, shrunk, images(9))


# What is not understood stays, and stays right.


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.first(inputs))
        outputs: Tensor = self.last(hidden + functional.relu(self.inner(hidden)))
        return outputs


class Shared(nn.Module):
    """One layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(functional.relu(self.twice(functional.relu(self.twice(inputs)))))
        return outputs


class Mixing(nn.Module):
    """Softmax over units: a constant unit changes all others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.first(inputs).softmax(-1))
        return outputs


@pytest.mark.parametrize("make", [Residual, Shared, Mixing])
@torch.no_grad()
def test_what_is_not_understood_is_left_alone_and_said(make: type[nn.Module]) -> None:
    with torch_randomness(3):
        network = make().eval()
    for layer in network.children():
        layer.weight[:3] = 0
        layer.weight[:, :2] = 0
    shrunk = shrink(network, torch.randn(2, 6))
    assert not shrunk.widths
    assert all("empty outputs stay" in reason for reason in shrunk.left.values())
    assert bool(shrunk.left) == (make is not Shared)
    same_outputs(network, shrunk, torch.randn(20, 6))


class Block(nn.Module):
    """The dense half of a transformer's block, on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow, self.head = (
            nn.LayerNorm(6),
            nn.Linear(6, 24),
            nn.Linear(24, 6),
            nn.Linear(6, 2),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.narrow(functional.gelu(self.wide(self.norm(tokens))))
        outputs: Tensor = self.head(tokens[:, 0])
        return outputs


@torch.no_grad()
def test_the_dense_half_of_a_transformer_shrinks_inside_its_residual() -> None:
    with torch_randomness(3):
        network = Block().eval()
    network.wide.weight[:20] = 0
    network.narrow.weight[:2] = 0
    shrunk = shrink(network, torch.randn(2, 5, 6))
    assert shrunk.widths == {"wide": (24, 4)}
    assert shrunk.left == {"narrow": "2 empty outputs stay: add.Tensor reads its output"}
    same_outputs(network, shrunk, torch.randn(5, 5, 6))


class Letters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(9, 4), nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, letters: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.lstm(self.embedding(letters))[0][:, -1])
        return outputs


class Choosy(nn.Module):
    """What it computes depends on values: no trace can hold that."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs if inputs.sum() > 0 else -inputs


def test_what_cannot_be_traced_is_a_typed_error() -> None:
    with pytest.raises(ModelError, match="Choosy cannot be traced"):
        shrink(Choosy(), torch.randn(2, 6))


@torch.no_grad()
def test_groups_lstm_without_removable_units_and_padded_means_are_left_alone() -> None:
    grouped = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.AvgPool2d(2, padding=1),
        nn.Flatten(),
        nn.Linear(36, 2),
    ).eval()
    averaged = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(64, 2)).eval()
    for network, inputs in (
        (grouped, torch.randn(3, 1, 8, 8)),
        (averaged, torch.randn(3, 1, 8, 8)),
        (Letters().eval(), torch.randint(0, 9, (3, 12))),
    ):
        for parameter in network.parameters():
            if parameter.dim() >= 2:
                parameter[: len(parameter) // 2] = 0
        shrunk = shrink(network, inputs)
        assert not shrunk.widths
        same_outputs(network, shrunk, inputs)

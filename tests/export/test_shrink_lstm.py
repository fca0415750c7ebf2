"""LSTMs lose the hidden units that a mask has emptied, and their outputs stay the same."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from subbit.core.randomness import torch_randomness
from subbit.data import Examples
from subbit.export.device import dense_copy, device_bytes, load_device
from subbit.export.runs import TrainedRun
from subbit.export.shrink import shrink
from subbit.models.small import CharLstm
from subbit.runtime.problem import Problem
from subbit.runtime.workplace import Workplace
from tests.problems import settings

HIDDEN = 10


def letters(layers: int = 2, dense: tuple[int, ...] = (6,)) -> CharLstm:
    with torch_randomness(4):
        return CharLstm(12, 3, embedding=5, hidden=HIDDEN, layers=layers, dense=dense).eval()


def texts(count: int) -> Tensor:
    return torch.randint(0, 12, (count, 9))


def rows(unit: int) -> list[int]:
    return [gate * HIDDEN + unit for gate in range(4)]


@torch.no_grad()
def same_outputs(before: nn.Module, after: nn.Module) -> None:
    inputs = texts(7)
    torch.testing.assert_close(after(inputs), before(inputs), atol=1e-6, rtol=0)


@torch.no_grad()
def test_what_is_not_needed_or_always_zero_goes() -> None:
    """Units 0 to 3 of both layers: nobody but themselves reads 0 and 1, nothing reaches the cells of 2 and 3."""
    network = letters()
    for layer, reader in ((0, network.lstm.weight_ih_l1), (1, network.dense[0].weight)):
        recurrent = getattr(network.lstm, f"weight_hh_l{layer}")
        others = [row for unit in range(2, HIDDEN) for row in rows(unit)]
        reader[:, :2] = 0
        recurrent[others, :2] = 0
        cells = [2 * HIDDEN + 2, 2 * HIDDEN + 3]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(network.lstm, f"{name}_l{layer}")[cells] = 0
        recurrent[2 * HIDDEN + 2, 3] = 1.0  # What reads nothing but zeros is zero, too.
    shrunk = shrink(network, texts(2))
    assert shrunk.widths == {"lstm": (HIDDEN, 6)}
    lstm = shrunk.module.get_submodule("lstm")
    assert isinstance(lstm, nn.LSTM)
    assert lstm.weight_hh_l1.shape == (24, 6)
    assert lstm.weight_ih_l1.shape == (24, 6)
    assert shrunk.module.get_submodule("dense.0").weight.shape == (6, 6)
    same_outputs(network, shrunk.module)


@torch.no_grad()
def test_the_layer_that_needs_most_gives_the_width() -> None:
    network = letters()
    network.dense[0].weight[:, 3:] = 0
    network.lstm.weight_hh_l1[:, 3:] = 0
    shrunk = shrink(network, texts(2))
    assert not shrunk.widths  # The first layer needs all ten.
    network.lstm.weight_ih_l1[:, 8:] = 0
    network.lstm.weight_hh_l0[:, 8:] = 0
    shrunk = shrink(network, texts(2))
    assert shrunk.widths == {"lstm": (HIDDEN, 8)}
    same_outputs(network, shrunk.module)


@torch.no_grad()
def test_a_unit_with_a_bias_alone_stays() -> None:
    """Its state follows a course of its own over time."""
    network = letters(layers=1, dense=())
    for name in ("weight_ih_l0", "weight_hh_l0"):
        getattr(network.lstm, name)[rows(4)] = 0
    assert not shrink(network, texts(2)).widths


@torch.no_grad()
def test_dense_layers_that_go_take_hidden_units_with_them() -> None:
    """Only the first two dense units are read by the head, and they read five of the ten hidden units."""
    network = letters(layers=1)
    network.head.weight[:, 2:] = 0
    network.dense[0].weight[:2, 5:] = 0
    network.lstm.weight_hh_l0[:, 5:] = 0
    shrunk = shrink(network, texts(2))
    assert shrunk.widths == {"dense.0": (6, 2), "lstm": (HIDDEN, 5)}
    same_outputs(network, shrunk.module)


class Stateful(nn.Module):
    """The last state is read besides the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs, (_, cells) = self.lstm(inputs)
        found: Tensor = self.head(outputs[:, -1]) + cells[0].sum(1, keepdim=True)
        return found


@torch.no_grad()
def test_an_lstm_whose_cells_are_read_is_left_alone() -> None:
    network = Stateful().eval()
    network.head.weight[:, 4:] = 0
    network.lstm.weight_hh_l0[:, 4:] = 0
    assert not shrink(network, torch.randn(2, 5, 4)).widths


@torch.no_grad()
def test_a_file_for_a_device_comes_back() -> None:
    data = Examples(texts(12), torch.arange(12) % 3)
    network = letters(layers=1)
    network.dense[0].weight[:, 5:] = 0
    network.lstm.weight_hh_l0[:, 5:] = 0
    problem = Problem(
        module=network,
        train=data,
        parts=(np.arange(12),),
        test=data,
        classes=3,
        pretrained=True,
        model_name="test",
        dataset_name="texts",
    )
    workplace = Workplace(problem, settings(method="fedavg", clients=1))
    workplace.method("main").task.flat.evaluation_mode()
    trained = TrainedRun(workplace, "trained", None, 1)
    small = shrink(dense_copy(trained), data.tensor[:2]).module
    again = load_device(device_bytes(trained, small), letters(layers=1))
    assert again.get_submodule("lstm").hidden_size == 5
    assert torch.equal(again(data.tensor), small(data.tensor))

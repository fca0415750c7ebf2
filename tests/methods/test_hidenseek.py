"""Sign masks on a pruned network: the survivors, the signs and the counts, against numbers derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subbit.codecs import Counts
from subbit.codecs.packed import count_ones, pack_bits, unpack_bits
from subbit.core.errors import ConfigError, ModelError
from subbit.methods.hidenseek import HideNseek
from subbit.methods.method import Turn
from subbit.models import FlatModel, SignMask
from subbit.models.pruning import input_of_ones, surviving_places
from subbit.runtime.client import client_turn
from subbit.runtime.messages import Order, encode_parts
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import down
from tests.problems import MODULES, digits_problem, settings


def make(module: nn.Module | None = None, **values: object) -> HideNseek:
    chosen = settings(method="hidenseek", **values)
    return Workplace(digits_problem(module), chosen).method("main")  # type: ignore[return-value]


def chain() -> nn.Sequential:
    """x -> A x -> ReLU -> b . A x with |A| = [[1, 2], [3, 4]], |b| = [5, 6]."""
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, -2.0], [-3.0, 4.0]]))
        module[2].weight.copy_(torch.tensor([[-5.0, 6.0]]))
    return module


def test_survivors_of_a_chain_by_hand() -> None:
    """R = 5 (1 + 2) + 6 (3 + 4) = 57. |w dR/dw| is 5, 10, 18, 24 for A and 15, 42 for b.

    The best half of all: 42, 24, 18, places 5, 3, 2. Of each tensor: 24, 18 and 42, the same. The best third of all:
    42, 24; of each tensor round(4/3) = 1 and round(2/3) = 1: 24 and 42. By size: 6, 5, 4, or of each tensor 4, 3, 6.
    """
    flat, ones = FlatModel(chain(), "all"), input_of_ones((2,), torch.float32)
    assert surviving_places(flat, ones, 0.5, per_tensor=False).tolist() == [2, 3, 5]
    assert surviving_places(flat, ones, 0.5).tolist() == [2, 3, 5]
    assert surviving_places(flat, ones, 1 / 3, per_tensor=False).tolist() == [3, 5]
    assert surviving_places(flat, None, 0.5, per_tensor=False).tolist() == [3, 4, 5]
    assert surviving_places(flat, None, 0.5).tolist() == [2, 3, 5]
    assert surviving_places(flat, ones, 1.0).tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(flat.weights, flat.initial)


def test_a_second_iteration_sees_what_the_first_has_cut() -> None:
    """|A| = [[1, 1], [10, 0]], |b| = [9, 1]: R = 9 * 2 + 1 * 10, saliencies 9, 9, 10, 0 (A) and 18, 10 (b).

    The best third at once: 18, and of the two tens the larger weight, places 4 and 2, which do not meet: no flow is
    left. In two iterations: first the best round(6 / sqrt(3)) = 3, with the other ten, place 5. Then R = 10, place 4
    leads nowhere and has saliency 0, and 2 and 5 survive.
    """
    module = chain()
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, 1.0], [-10.0, 0.0]]))
        module[2].weight.copy_(torch.tensor([[9.0, -1.0]]))
    flat, ones = FlatModel(module, "all"), input_of_ones((2,), torch.float32)
    assert surviving_places(flat, ones, 1 / 3, 1, per_tensor=False).tolist() == [2, 4]
    assert surviving_places(flat, ones, 1 / 3, 2, per_tensor=False).tolist() == [2, 5]


@pytest.mark.parametrize("module", MODULES)
def test_pruning_keeps_its_share_of_every_tensor_and_leaves_the_module_alone(module: str) -> None:
    flat = FlatModel(MODULES[module](), "all: weights")
    places = surviving_places(flat, input_of_ones((1, 8, 8), torch.uint8), 0.25, iterations=3)
    for offset, count in zip(flat.template.offsets, flat.template.counts, strict=True):
        assert ((places >= offset) & (places < offset + count)).sum() == round(0.25 * count)
    assert torch.equal(flat.weights, flat.initial)
    assert next(flat.module.parameters()).dtype == torch.float32
    by_size = surviving_places(flat, None, 0.25)
    assert not np.array_equal(places, by_size)


class Stubborn(nn.Module):
    """Computes in float32 whatever its weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(10, 64))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).float() @ self.weight.T


def test_a_module_without_a_flow_in_float64_is_an_error_that_names_it_and_magnitude_works() -> None:
    with pytest.raises(ModelError, match="Stubborn in float64, prune by magnitude"):
        make(Stubborn(), select="weight")
    assert make(Stubborn(), select="weight", saliency="magnitude").map.size == 320


def test_weights_and_gradients_of_signs_by_hand() -> None:
    """Survivors 0, 2, 3 of w0 = 2, 5, -3, 4. sign(0) = +1; the score 1.5 is beyond the gate, 1 is not."""
    mask = SignMask(torch.tensor([2.0, 5.0, -3.0, 4.0]), torch.tensor([0, 2, 3]))
    weights, out = torch.full((4,), 9.0), torch.empty(3)
    mask.write(torch.tensor([0.0, -0.2, 1.5]), weights, key=0)
    assert weights.tolist() == [2.0, 0.0, 3.0, 4.0]
    mask.pull_back(torch.tensor([10.0, 20.0, 30.0, 40.0]), torch.tensor([1.0, -0.2, 1.5]), out)
    assert out.tolist() == [20.0, -90.0, 0.0]


def test_the_server_averages_signs_and_ties_are_plus() -> None:
    """+1 from 0, 1, 2, 3, 4 of 4 clients: means -1, -1/2, 0, 1/2, 1; signs -, -, +, +, +."""
    method = make()
    state = {"counts": np.arange(method.map.size, dtype=np.uint16) % 5, "total": 4}
    survivors, flat = method.map.network.survivors[:5], method.task.flat
    method.write_network(state, "mean", 0)
    expected = flat.initial[survivors] * torch.tensor([-1, -0.5, 0, 0.5, 1])
    torch.testing.assert_close(flat.weights[survivors], expected)
    method.write_network(state, "signs", 0)
    assert torch.equal(flat.weights[survivors], flat.initial[survivors] * torch.tensor([-1, -1, 1, 1, 1]))
    assert torch.count_nonzero(flat.weights) == method.map.size == 592  # Half of 64 * 16 + 16 * 10.


def test_signs_of_three_clients_become_counts_and_start_anew_each_round() -> None:
    method = make()
    accumulator = method.accumulator()
    for plus in (True, True, False):
        payload = {"signs": pack_bits(np.full(method.map.size, plus))}
        method.accumulate(accumulator, Counts(0, np.zeros(method.map.size, np.uint16)), payload, 1, 0, 0)
    state = method.step(method.start(), accumulator, 0)
    assert state["total"] == 3
    assert method.exchange.trained(method.open(method.broadcast(state, 1), 1))[0].item() == pytest.approx(1 / 3)
    assert method.step(state, method.accumulator(), 1)["total"] == 0


def test_a_client_moves_scores_within_one_and_sends_a_bit_per_survivor() -> None:
    method = make(preset="paper", epochs=5, score_init=1.0)
    view = method.open(method.broadcast(method.start(), 0), 0)
    data = digits_problem().client_data(0)
    update = method.train(view, data, Turn(0, 0, {}))
    (part,) = method.up_parts()
    assert len(part.codec.encode(update.payloads["signs"], method.shared(part, view, 0, 0))) == 592 // 8
    # All signs were + at the start: what is - now has flipped.
    assert update.observations["flips"] == 592 - count_ones(update.payloads["signs"]) > 0
    resting = make(learning_rate=0.0, score_init=1.0)
    view = resting.open(resting.broadcast(resting.start(), 0), 0)
    still = resting.train(view, data, Turn(0, 0, {}))
    assert unpack_bits(still.payloads["signs"], 592).all()


def test_a_sign_on_which_all_agree_turns_after_so_many_steps() -> None:
    """Adam moves a score by at most the learning rate 0.3 at first: from 1 to below 0 in 4 steps, not in 3.

    80 examples in one batch: as many steps as epochs.
    """
    data = digits_problem().client_data(0)
    for epochs, turns in ((3, False), (4, True)):
        method = make(epochs=epochs, batch_size=80, score_init=1.0)
        view = method.open(method.broadcast(method.start(), 0), 0)
        assert (method.train(view, data, Turn(0, 0, {})).observations["flips"] > 0) is turns


def test_scores_of_a_random_network_start_uniform_and_from_the_seed() -> None:
    """Mean 0 with standard error sqrt(1 / 3 / 592) = 0.024; variance 1/3."""
    scores = make().map.latents()
    assert scores.mean().item() == pytest.approx(0, abs=0.08)
    assert scores.var().item() == pytest.approx(1 / 3, abs=0.05)
    assert torch.equal(scores, make().map.latents())
    assert not torch.equal(scores, make(seed=1).map.latents())


def test_a_client_that_pruned_otherwise_refuses_the_broadcast() -> None:
    """The same number of survivors, in other places: without the check the signs would land on other weights."""
    server, client = make(), Workplace(digits_problem(), settings(method="hidenseek", saliency="magnitude"))
    assert server.map.size == client.method("main").map.size
    frames = encode_parts(server, "main", down(0), server.broadcast(server.start(), 0), None)
    reply = client_turn(client, Order("main", 0, 0, frames))
    assert reply.failure is not None
    assert reply.failure.cause == "template"


@pytest.mark.parametrize("values", [{"keep": 0.0}, {"keep": 1.1}, {"prune_iterations": 0}, {"score_init": 2.0}])
def test_values_without_meaning_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        settings(method="hidenseek", **values)


def test_the_majority_alone_can_go_down() -> None:
    """+1 from 1 and from 2 of 3 clients, means -1/3 and 1/3: with `broadcast=sign` -1 and 1."""
    state = {"counts": np.arange(make().map.size, dtype=np.uint16) % 2 + 1, "total": 3}
    for words, scores in (({}, [-1 / 3, 1 / 3]), ({"broadcast": "sign"}, [-1, 1])):
        method = make(**words)
        view = method.open(method.broadcast(state, 1), 1)
        assert method.exchange.trained(view)[:2].tolist() == pytest.approx(scores)


@pytest.mark.parametrize("method", ["hidenseek", "bnn"])
def test_signs_go_up_through_exact_codecs_of_bits_alone(method: str) -> None:
    for codec in ("bfuse", "eden", "counts"):
        with pytest.raises(ConfigError, match=f"^codec='{codec}': "):
            settings(method=method, codec=codec)

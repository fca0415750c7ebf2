"""Every option of DeltaMask in a whole run: filters, exact codes, heads, couplings, seeds, orders and schedules."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from subbit.codecs.packed import count_ones, pack_bits, positions_of_bits
from subbit.codecs.sampler import sample_bits
from subbit.core.randomness import derive_key
from subbit.methods.deltamask import DeltaMask, bernoulli_divergence
from subbit.methods.method import Turn
from subbit.models.head_start import LdaStatistics, kaiming_, solve
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp, settings

FILTERS = [(codec, bits) for codec in ("bfuse", "xor") for bits in (8, 16, 32)]


@cache
def run(**values: Any) -> dict[str, Any]:
    summary = run_job(digits_problem(), settings(method="deltamask", rounds=1, **values)).summary
    assert summary["failed_clients"] == 0, summary["failures"]
    return summary


@pytest.mark.parametrize(
    "values",
    [
        *({"codec": codec} for codec in ("rice", "range", "context", "near", "packed")),
        *({"codec": codec, "bits": 32} for codec in ("bfuse", "xor")),
        {"codec": "bfuse", "bits": 32, "arity": 3, "container": "png"},
        {"codec": "xor", "bits": 32, "container": "raw"},
    ],
)
def test_what_carries_the_flips_changes_nothing_but_bytes(values: dict[str, Any]) -> None:
    """Exact codes, and filters of which one place in 2^32 is wrong: 1,184 places, the same model bit for bit."""
    assert run(**values)["model_sha256"] == run()["model_sha256"]
    # The default takes the smallest code, and a byte in each of the three uploads says which.
    assert run(**values)["uplink_bytes"] + 3 >= run()["uplink_bytes"]


@pytest.mark.parametrize("codec", ["bfuse", "xor"])
def test_every_byte_of_a_fingerprint_is_paid_for(codec: str) -> None:
    """Same flips, same slots, b / 8 bytes each: the rest of a frame is the same for all three widths."""
    narrow, middle, wide = (run(codec=codec, bits=bits, container="raw")["uplink_bytes"] for bits in (8, 16, 32))
    assert wide - middle == 2 * (middle - narrow) > 0


@pytest.mark.parametrize("codec", ["bfuse", "xor", "lane"])
def test_narrow_filters_train_on_what_they_got_wrong(codec: str) -> None:
    """About (1184 - n) / 256 = 4 false flips in each of three uploads: another model than the one that was meant."""
    assert run(codec=codec)["model_sha256"] != run()["model_sha256"]


@pytest.mark.parametrize(("codec", "bits"), FILTERS)
def test_false_flips_are_as_many_as_the_fingerprints_are_wide(codec: str, bits: int) -> None:
    """d = 64 * 74 = 4,736 places and n flips, in 24 filters of different keys: each of the 24 (d - n) other places is
    hit with probability 2^-b. Poisson, so its deviation is the root of the mean; five of them are allowed."""
    method = make(mlp(64), codec=codec, bits=bits)
    (part,) = method.up_parts()
    flips, view = pack_bits(np.arange(method.size) % 10 == 0), method.map.initial_thresholds()
    false = 0
    for round_number in range(24):
        shared = method.shared(part, view, round_number, 0)
        decoded = part.codec.decode(part.codec.encode(flips, shared), shared)
        assert count_ones(flips & ~decoded) == 0
        false += count_ones(decoded & ~flips)
    mean = 24 * (method.size - count_ones(flips)) / 2**bits
    assert abs(false - mean) <= 5 * math.sqrt(mean)


def make(module: nn.Module | None = None, **values: Any) -> DeltaMask:
    method = Workplace(digits_problem(module), settings(method="deltamask", **values)).method("main")
    assert isinstance(method, DeltaMask)
    return method


@pytest.mark.parametrize("coupling", ["shared", "independent"])
@pytest.mark.parametrize("seed_scope", ["client", "round"])
@pytest.mark.parametrize("order", ["kl", "random"])
@pytest.mark.parametrize("schedule", ["cosine", "const"])
def test_couplings_seeds_orders_and_schedules(coupling: str, seed_scope: str, order: str, schedule: str) -> None:
    """A client's turn in round 1 of 3: ceil(kappa n) of its n flips go up, a subset, and which of them the order says.

    kappa is 0.5 in a constant schedule; half a cosine is halfway to 1 after half of the rounds: 0.75.
    """
    values = {"coupling": coupling, "seed_scope": seed_scope, "order": order, "kappa_schedule": schedule}
    data = digits_problem().client_data(1)
    trimmed, whole = (make(rounds=3, kappa=kappa, **values) for kappa in (0.5, 1.0))
    view = trimmed.map.initial_thresholds()
    kept, flips = (method.train(view, data, Turn(1, 1, {})).payloads["flips"] for method in (trimmed, whole))
    assert count_ones(kept) == math.ceil((0.5 if schedule == "const" else 0.75) * count_ones(flips))
    assert count_ones(kept & ~flips) == 0
    before, after = trimmed.exchange.trained(view), trimmed.exchange.trained(view)
    trimmed.trainer.train(after, data, Turn(1, 1, {}))
    divergence = bernoulli_divergence(after.double(), before.double()).numpy()
    inside = divergence[positions_of_bits(kept, trimmed.size)]
    outside = divergence[positions_of_bits(flips & ~kept, trimmed.size)]
    assert (inside.min() >= outside.max()) == (order == "kl")


@pytest.mark.parametrize("seed_scope", ["client", "round"])
def test_the_scope_of_the_seed_decides_whether_clients_start_from_one_mask(seed_scope: str) -> None:
    method = make(seed_scope=seed_scope)
    keys = {method.parameters.up.reference_key(method.task, 4, client) for client in range(3)}
    assert len(keys) == (1 if seed_scope == "round" else 3)


@pytest.mark.parametrize("head", ["probe", "kaiming", "lda"])
def test_every_head_of_the_paper_is_fitted_once_and_then_frozen(head: str) -> None:
    """LP, He and FiT. After two rounds of masks below it the head is still the one that the head phase made.

    He is N(0, 2 / fan-in) from the model's key; FiT is the discriminant of the features of all data together, which
    the clients' statistics add up to; LP has moved away from its random start.
    """
    chosen = settings(
        method="deltamask",
        model="mlp",
        limit=240,
        test_limit=100,
        head=head,
        select="backbone: weights",
        head_codec="float32",
    )
    problem = build_problem(chosen.run)
    result = run_job(problem, chosen)
    assert result.summary["failed_clients"] == 0
    assert (result.summary["one_off_bytes"] > 0) == (head != "kaiming")
    fitted = result.module.get_submodule("head")
    random = kaiming_(nn.Linear(100, 10), derive_key(chosen.run.seed, "model"))
    if head == "kaiming":
        assert torch.equal(fitted.weight, random.weight)
        assert not fitted.bias.any()
    elif head == "probe":
        assert 0 < (fitted.weight - random.weight).abs().max() < 0.1
    else:
        with torch.no_grad():
            features = problem.module.features(problem.train.inputs)
        weight, bias = solve(LdaStatistics.from_features(features, problem.train.labels, 10))
        assert fitted.weight.detach().numpy() == pytest.approx(weight.numpy(), rel=1e-3, abs=1e-3)
        assert fitted.bias.detach().numpy() == pytest.approx(bias.numpy(), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("scope", "distinct"), [("client", 4), ("round", 2), ("client-run", 2), ("run", 1)], ids=lambda value: str(value)
)
def test_the_uniforms_are_as_many_as_the_scope_says(scope: str, distinct: int) -> None:
    """Two rounds of two clients; and the server rebuilds the client's mask from the flips in each."""
    method = make(seed_scope=scope, kappa=1.0, kappa_schedule="const")
    up, view = method.exchange.up, method.map.initial_thresholds()
    wheres = [(number, client) for number in range(2) for client in range(2)]
    assert len({up.reference_key(method.task, *where) for where in wheres}) == distinct
    for number, client in wheres:
        trained = method.exchange.trained(view) + 0.7
        payloads, _ = method.exchange.say(view, trained, Turn(number, client, {}))
        mask = up.mask(method.exchange, view, payloads["flips"], (number, client))
        key = up.reference_key(method.task, number, client)
        assert np.array_equal(mask, sample_bits(method.map.moved(view, trained), key))

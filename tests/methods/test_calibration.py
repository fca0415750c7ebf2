"""Training that does not learn a client's mix of classes: by hand, as a law, and where it matters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from subbit.core.errors import ConfigError
from subbit.data.examples import Examples
from subbit.local.calibration import UNSEEN, Calibrated, class_shift, diversity
from subbit.models.task import Turn
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, mlp, settings


def two_classes_each(labels: np.ndarray, clients: int = 5) -> list[np.ndarray]:
    """Client k has the classes 2k and 2k + 1."""
    return [np.flatnonzero(labels // 2 == client)[:60] for client in range(clients)]


def test_the_shift_by_hand() -> None:
    """Three of class 0, one of class 1, none of class 2: shares (3.1, 1.1, 0.1) / 4.3, times 3 classes."""
    assert UNSEEN == 0.1
    expected = [math.log(3 * share / 4.3) for share in (3.1, 1.1, 0.1)]
    assert class_shift(torch.tensor([0, 1, 0, 0]), 3).tolist() == pytest.approx(expected)


def test_equal_shares_shift_nothing() -> None:
    assert class_shift(torch.arange(10).repeat(7), 10).tolist() == pytest.approx([0.0] * 10, abs=1e-6)


def test_the_best_network_is_the_same_whatever_the_mix() -> None:
    """Two normal classes at -1 and 1 and a mix of 9 to 1: the best logits with the shift are those of equal shares, up
    to the noise of 20,000 examples; without it they differ by log 9."""
    draws = np.random.default_rng(0)
    labels = torch.from_numpy((draws.random(20_000) < 0.1).astype(np.int64))
    inputs = torch.from_numpy(draws.normal(size=20_000)).float() + 2.0 * labels - 1.0

    def best_bias(shift: torch.Tensor) -> float:
        """Of class 1; the weight of the difference of logits is known to be 2."""
        bias = torch.zeros((), requires_grad=True)
        optimizer = torch.optim.LBFGS([bias], max_iter=50)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            logits = torch.stack([torch.zeros_like(inputs), 2.0 * inputs + bias], dim=1)
            loss = cross_entropy(logits + shift, labels)
            loss.backward()
            return loss

        optimizer.step(closure)
        return float(bias.detach())

    assert best_bias(class_shift(labels, 2)) == pytest.approx(0.0, abs=0.1)
    assert best_bias(torch.zeros(2)) == pytest.approx(-math.log(9), abs=0.1)


def test_a_module_with_more_outputs_than_classes() -> None:
    """Outputs that no example has are as rare as a class that the client does not have."""
    problem = digits_problem(mlp(64))
    task = Workplace(problem, settings(method="fedavg")).method("main").task
    few = Examples(problem.train.batch(np.arange(4)).inputs, torch.tensor([0, 1, 2, 0]))
    calibrated = Calibrated(task, few.labels)
    calibrated.shift = class_shift(few.labels, 3)
    assert torch.isfinite(calibrated(few))


def test_without_a_fitted_head_only_classes_that_are_not_there_are_rare() -> None:
    """Three of class 0, one of class 1, none of the others: (3.1, 1.1, 0.1, ...) / 5 of ten classes. Nobody knows how
    frequent they are among all clients, so the first two keep their logits."""
    task = Workplace(digits_problem(mlp(64)), settings(method="fedavg")).method("main").task
    shift = Calibrated(task, torch.tensor([0, 1, 0, 0])).shift
    assert shift.tolist() == pytest.approx([0.0, 0.0, *[math.log(10 * 0.1 / 5.0)] * 8])


def test_what_all_clients_have_is_learned_where_no_head_is_fitted() -> None:
    """Nine of ten examples of every client are of one class. Equal shares would be wrong by log 9; a client that knows
    nothing of the others has to learn what its examples say."""
    task = Workplace(digits_problem(mlp(64)), settings(method="fedavg")).method("main").task
    labels = torch.cat([torch.zeros(90, dtype=torch.int64), torch.arange(1, 10)])
    assert not Calibrated(task, labels).shift.any()


def test_clients_with_two_classes_each_keep_what_the_head_knows() -> None:
    """From a head that was fitted on all classes: training on two of them forgets the others, and less so with it."""
    labels = digits_problem(mlp(64)).train.labels
    assert labels is not None
    parts = two_classes_each(labels.numpy())
    common = {"method": "fedavg", "head": "lda", "clients": 5, "rounds": 2, "epochs": 3, "learning_rate": 0.01}
    common |= {"select": "all"}
    with_it, without = (
        run_job(digits_problem(mlp(64), parts), settings(**common, calibrate=on)).summary for on in (True, False)
    )
    assert with_it["accuracy_before"] == without["accuracy_before"] > 0.5
    assert with_it["accuracy"] > without["accuracy"] + 0.05


def test_what_it_cannot_be_combined_with() -> None:
    for words, message in [
        ({"method": "moon"}, "use calibrate=false"),
        ({"method": "fedavg", "privacy": "run", "optimizer": "sgd"}, "use calibrate=false"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Workplace(digits_problem(mlp(64)), settings(**words, calibrate=True)).method("main")


def test_diversity_by_hand() -> None:
    """Two classes of ten in equal parts: log 2 / log 10."""
    assert diversity(torch.tensor([3, 3, 7, 7]), 10) == pytest.approx(math.log(2) / math.log(10))
    assert diversity(torch.arange(10), 10) == pytest.approx(1.0)
    assert diversity(torch.tensor([4, 4]), 10) == 0.0


def test_a_client_with_one_class_changes_nothing() -> None:
    labels = digits_problem(mlp(64)).train.labels
    assert labels is not None
    parts = [np.flatnonzero(labels.numpy() == client)[:40] for client in range(10)]
    common = {"method": "subbit", "head": "lda", "clients": 10, "rounds": 2}
    problem = replace(digits_problem(mlp(64), parts), pretrained=True)
    summary = run_job(problem, settings(**common)).summary
    assert summary["accuracy"] == summary["accuracy_before"]


def test_shares_of_classes_come_with_the_head() -> None:
    """24 examples of class 0 and 6 each of nine others: shares 24.5 / 83 and 6.5 / 83, times 10 classes, in eighths.

    They are on the wire, so that a client that has only received frames knows them.
    """
    labels = digits_problem(mlp(64)).train.labels
    assert labels is not None
    chosen = np.concatenate([np.flatnonzero(labels.numpy() == each)[: 6 if each else 24] for each in range(10)])
    problem = digits_problem(mlp(64), np.array_split(np.random.default_rng(0).permutation(chosen), 4))
    made = settings(method="subbit", head="lda", clients=4, rounds=1)
    server = Workplace(problem, made)
    method = server.method("head")
    accumulator = method.accumulator()
    for client in range(4):
        update = method.train(None, problem.client_data(client), Turn(0, client, {}))
        method.accumulate(accumulator, None, update.payloads, update.examples, 0, client)
    head = method.step(method.start(), accumulator, 0)["head"]
    node = Workplace(problem, made)
    node.write_head(node.unpack_head(server.pack_head(np.asarray(head))))
    expected = [round(8 * math.log(share / 83 * 10)) / 8 for share in (24.5, *[6.5] * 9)]
    assert node.method("main").task.log_shares.tolist() == expected
    calibrated = Calibrated(node.method("main").task, labels[chosen])
    assert calibrated.shift.tolist() == pytest.approx([0.0] * 10, abs=0.07)

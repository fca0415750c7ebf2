"""What every registered method must do. A new method is covered by being registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from subbit.errors import QuorumError
from subbit.methods.registry import find_method, method_names
from subbit.models import FlatModel
from subbit.report.folder import RunFolder
from subbit.runtime.run import Progress, run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger
from tests.oracles import frozen_digest
from tests.problems import MODULES, digits_problem, mlp, settings

METHODS = method_names()


def finish(method: str, module: nn.Module | None = None, **values: Any) -> dict[str, Any]:
    parts = values.pop("parts", None)
    problem = digits_problem(module, parts)
    chosen = settings(method=method, clients=problem.clients, **values)
    return run_job(problem, chosen).summary


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_it_runs_on_every_kind_of_module(method: str, module: str, preset: str) -> None:
    summary = finish(method, MODULES[module](), preset=preset, epochs=1)
    assert summary["failed_clients"] == 0, summary["failures"]
    assert (summary["uplink_bytes"] > 0) == (find_method(method).sends_up != "nothing")
    assert (summary["downlink_bytes"] > 0) == (find_method(method).sends_down != "nothing")
    assert 0 <= summary["accuracy"] <= 1


@pytest.mark.parametrize("method", METHODS)
def test_it_learns(method: str) -> None:
    """Digits on a small network: chance is 0.1."""
    summary = finish(method, mlp(64), rounds=8, epochs=8, batch_size=16)
    assert summary["accuracy"] > 0.5


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_model_and_another_seed_another(method: str) -> None:
    first, second, other = finish(method), finish(method), finish(method, seed=1)
    assert first["model_sha256"] == second["model_sha256"]
    assert first["uplink_bytes"] == second["uplink_bytes"]
    if find_method(method).sends_up != "nothing":  # The common model of a method that sends nothing is the start.
        assert first["model_sha256"] != other["model_sha256"]


@pytest.mark.parametrize("method", METHODS)
def test_clients_without_data_with_one_example_and_with_one_class(method: str) -> None:
    labels = digits_problem().train.labels.numpy()
    parts = [np.arange(0), np.arange(1), np.flatnonzero(labels == 3)[:20], np.arange(1, 60)]
    summary = finish(method, parts=parts)
    assert summary["clients"] == 4
    assert summary["participants"] == 3
    assert summary["failed_clients"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_not_a_number_fails_the_client_and_not_the_run(method: str) -> None:
    problem = digits_problem(nn.Sequential(_Overflow(), *list(mlp())[1:]))
    summary = run_job(problem, settings(method=method, quorum=0.3)).summary
    assert summary["failures"] == {"training": 2}  # Client 0, in both rounds.
    with pytest.raises(QuorumError, match="2 of 3 clients answered"):
        run_job(problem, settings(method=method, quorum=1.0))


class _Overflow(nn.Module):
    """Not a number wherever a batch holds the first client's first example."""

    def forward(self, images: Any) -> Any:
        poisoned = digits_problem().train.inputs[0]
        hit = (images == poisoned).flatten(1).all(1).any()
        return images.float() / 255 + (float("nan") if bool(hit) else 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_resuming_after_any_round_equals_an_uninterrupted_run(method: str, tmp_path: Path) -> None:
    problem, chosen = digits_problem(), settings(method=method, rounds=3, folder=str(tmp_path), name="a", head="lda")
    if not find_method(method).trains_weights(settings(method=method).parameters):
        chosen = settings(method=method, rounds=3, folder=str(tmp_path), name="a", head="lda", select="2.weight")
    straight = run_job(problem, chosen, RunFolder.create(chosen, "")).summary
    other = settings(**{**_plain(chosen), "name": "b"})

    class Interrupted(Exception): ...

    for stop_after in (0, 1):
        folder = RunFolder.create(other, "")

        def stop(progress: Progress, last: int = stop_after) -> None:
            if progress.round_number == last:
                raise Interrupted

        with pytest.raises(Interrupted):
            run_job(problem, other, folder, report=stop)
        resumed = run_job(problem, other, RunFolder.open(folder.path), resume=True).summary
        assert resumed["model_sha256"] == straight["model_sha256"]
        assert resumed["total_bytes"] == straight["total_bytes"]
        assert resumed["accuracy_by_round"] == straight["accuracy_by_round"]
        ledgers = [(tmp_path / name / "ledger.csv").read_bytes() for name in ("a", "b")]
        assert ledgers[0] == ledgers[1]


def _plain(chosen: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(chosen.run), **asdict(chosen.parameters)}


@pytest.mark.parametrize("method", METHODS)
def test_frozen_weights_stay_bit_identical(method: str) -> None:
    problem, untouched = digits_problem(), mlp()
    # A method that adds modules decides by itself what is trained.
    implied = find_method(method).prepare(untouched, settings(method=method).parameters, 10, 1)
    selection = implied or "2.weight"
    frozen = frozen_digest(FlatModel(untouched, selection))
    trained = run_job(problem, settings(method=method, select="auto" if implied else selection)).module
    assert frozen_digest(FlatModel(trained, selection)) == frozen


@pytest.mark.parametrize("method", METHODS)
def test_bytes_in_the_summary_are_those_in_the_ledger(method: str, tmp_path: Path) -> None:
    chosen = settings(method=method, folder=str(tmp_path), name="run")
    summary = run_job(digits_problem(), chosen, RunFolder.create(chosen, "")).summary
    entries = Ledger.read_csv(tmp_path / "run" / "ledger.csv").entries
    assert summary["uplink_bytes"] == sum(entry.frame_bytes for entry in entries if entry.direction == "up")
    assert summary["downlink_bytes"] == sum(entry.frame_bytes for entry in entries if entry.direction == "down")
    turns = 3 * 2
    expected = 8 * summary["uplink_bytes"] / (turns * summary["parameters"])
    assert summary["uplink_bpp"] == pytest.approx(expected)


@pytest.mark.parametrize("method", METHODS)
def test_every_network_can_be_written(method: str) -> None:
    workplace = Workplace(digits_problem(), settings(method=method))
    made = workplace.method("main")
    for network in made.networks:
        workplace.write_network(made.start(), network, 1, None)
        assert 0 <= workplace.correct(np.arange(100)).sum() <= 100
    assert made.primary_network in made.networks

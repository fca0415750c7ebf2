"""Laws of methods, tested on small networks and handwritten digits."""

from __future__ import annotations

import pickle
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from subbit.conformance.laws import LawError, Laws, demand
from subbit.conformance.problems import MODULES, digits_problem, mlp, settings
from subbit.core.errors import QuorumError
from subbit.core.pieces import as_words
from subbit.methods.names import find_method
from subbit.models import FlatModel
from subbit.models.flat import sha256_of
from subbit.models.task import Turn
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import Progress, run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger

law = Laws()
LEARNT = 0.5
"""Required accuracy on digits, where chance is 0.1."""


def finish(method: str, module: nn.Module | None = None, **values: Any) -> dict[str, Any]:
    """The summary of a short run."""
    parts = values.pop("parts", None)
    problem = digits_problem(module, parts)
    return run_job(problem, settings(method=method, clients=problem.clients, **values)).summary


def runs_on(method: str, module: str, preset: str) -> None:
    summary, where = finish(method, MODULES[module](), preset=preset, epochs=1), f"{module}, preset={preset}"
    demand(summary["failed_clients"] == 0, f"{where}: clients fail: {summary['failures']}")
    for way, said in (("uplink", find_method(method).sends_up), ("downlink", find_method(method).sends_down)):
        found = summary[f"{way}_bytes"]
        demand((found > 0) == (said != "nothing"), f"{where}: {found} bytes of {way}, though it sends {said!r}")
    demand(0 <= summary["accuracy"] <= 1, f"{where}: accuracy {summary['accuracy']}")


@law("runs on a dense network, a convolutional one and a transformer, with each of its presets")
def runs_everywhere(method: str) -> None:
    for module in MODULES:
        for preset in find_method(method).presets:
            runs_on(method, module, preset)


@law(f"learns: accuracy above {LEARNT} on digits after 8 rounds")
def learns(method: str) -> None:
    accuracy = finish(method, mlp(64), rounds=8, epochs=8, batch_size=16)["accuracy"]
    demand(accuracy > LEARNT, f"accuracy {accuracy:.3f}")


@law("the same seed gives the same model, another seed another")
def repeats(method: str) -> None:
    first, second, other = finish(method), finish(method), finish(method, seed=1)
    demand(first["model_sha256"] == second["model_sha256"], "two runs with the same seed end with different models")
    demand(first["uplink_bytes"] == second["uplink_bytes"], "two runs with the same seed send different bytes")
    if find_method(method).sends_up != "nothing":  # Without uploads, the common model is the initial one.
        demand(first["model_sha256"] != other["model_sha256"], "another seed ends with the same model")


@law("two worker processes give the same model as none")
def workers_change_nothing(method: str) -> None:
    alone, together = finish(method), finish(method, workers=2)
    demand(together["failed_clients"] == 0, f"clients fail in worker processes: {together['failures']}")
    demand(alone["model_sha256"] == together["model_sha256"], "workers=2 ends with another model than workers=1")


@law("clients may have no data, one example or one class")
def odd_clients(method: str) -> None:
    labels = digits_problem().examples.labels.numpy()
    parts = [np.arange(0), np.arange(1), np.flatnonzero(labels == 3)[:20], np.arange(1, 60)]
    summary = finish(method, parts=parts)
    demand((summary["clients"], summary["participants"]) == (4, 3), "a client without data took part")
    demand(summary["failed_clients"] == 0, f"clients fail: {summary['failures']}")


@law("a loss that is not a number fails the client and not the run")
def survives_nan(method: str) -> None:
    problem = digits_problem(nn.Sequential(_Overflow(), *list(mlp().children())[1:]))
    failures = run_job(problem, settings(method=method, quorum=0.3)).summary["failures"]
    demand(failures == {"training": 2}, f"one client fails in both rounds; counted were {failures}")
    try:
        run_job(problem, settings(method=method, quorum=1.0))
    except QuorumError as error:
        demand("2 of 3 clients answered" in str(error), str(error))
    else:
        raise LawError("a quorum of all clients is not asked for")


class _Overflow(nn.Module):
    """Returns NaN whenever a batch contains the first client's first example."""

    def forward(self, images: Tensor) -> Tensor:
        poisoned = digits_problem().examples.tensor[0]
        hit = (images == poisoned).flatten(1).all(1).any()
        return images.float() / 255 + (float("nan") if bool(hit) else 0.0)


@law("resuming after any round equals an uninterrupted run")
def resumes(method: str) -> None:
    with tempfile.TemporaryDirectory(prefix="subbit-") as folder:
        check_resuming(method, Path(folder))


def check_resuming(method: str, place: Path) -> None:
    trains_weights = find_method(method).trains_weights(settings(method=method).parameters)
    select = {} if trains_weights else {"select": "2.weight"}
    problem = digits_problem()
    chosen = settings(method=method, rounds=3, folder=str(place), name="a", head="lda", **select)
    straight = run_job(problem, chosen, RunFolder.create(chosen, "")).summary
    for stop_after in (0, 1):
        name = f"b{stop_after}"
        other = settings(**{**asdict(chosen.run), method: as_words(chosen.parameters), "name": name})
        folder = RunFolder.create(other, "")

        def stop(progress: Progress, last: int = stop_after) -> None:
            if progress.round_number == last:
                raise _Stopped

        with suppress(_Stopped):
            run_job(problem, other, folder, report=stop)
        resumed = run_job(problem, other, RunFolder.open(folder.path), resume=True).summary
        for key in ("model_sha256", "total_bytes", "accuracy_by_round"):
            demand(resumed[key] == straight[key], f"stopped after round {stop_after}, {key} differs")
        ledgers = [(place / run / "ledger.csv").read_bytes() for run in ("a", name)]
        demand(ledgers[0] == ledgers[1], f"stopped after round {stop_after}, the ledger differs")


class _Stopped(Exception):
    pass


def frozen_digest(flat: FlatModel) -> str:
    """SHA-256 of every parameter and buffer that is not trained (nor, with `average`, a running statistic)."""
    # By their tensors: one that is trained may have more names than one.
    parameters = dict(flat.module.named_parameters())
    tensors = [(name, value) for name, value in parameters.items() if name not in flat.template.names]
    trained: set[str] = set()
    if flat.statistics_template is not None:
        trained = set(flat.statistics_template.names)
    buffers = [(name, value) for name, value in flat.module.named_buffers() if name not in trained]
    return sha256_of([*tensors, *buffers])


@law("weights that are not selected stay as they are, bit for bit")
def leaves_frozen_weights(method: str) -> None:
    untouched = mlp()
    # A method that adds modules determines what is trained.
    implied = find_method(method).prepare(untouched, settings(method=method).parameters, 10, 1)
    selection = implied or "2.weight"
    frozen = frozen_digest(FlatModel(untouched, selection))
    trained = run_job(digits_problem(), settings(method=method, select="auto" if implied else selection)).module
    demand(frozen_digest(FlatModel(trained, selection)) == frozen, f"select={selection!r}: other weights changed")


@law("bytes in the summary are those of the frames in the ledger")
def counts_bytes(method: str) -> None:
    with tempfile.TemporaryDirectory(prefix="subbit-") as folder:
        chosen = settings(method=method, folder=folder, name="run")
        summary = run_job(digits_problem(), chosen, RunFolder.create(chosen, "")).summary
        entries = Ledger.read_csv(Path(folder) / "run" / "ledger.csv").entries
    for way, key in (("up", "uplink_bytes"), ("down", "downlink_bytes")):
        total = sum(entry.frame_bytes for entry in entries if entry.direction == way)
        demand(summary[key] == total, f"{key} is {summary[key]}, the ledger has {total}")
    expected = 8 * summary["uplink_bytes"] / (3 * 2 * summary["parameters"])
    demand(abs(summary["uplink_bpp"] - expected) <= 1e-6 * expected, f"uplink_bpp is {summary['uplink_bpp']}")


@law("every network that it names can be written and evaluated")
def writes_networks(method: str) -> None:
    workplace = Workplace(digits_problem(), settings(method=method))
    made = workplace.method("main")
    for network in made.networks:
        workplace.write_network(made.start(), network, 1, None)
        demand(0 <= workplace.tally(np.arange(100))[:, 0].sum() <= 100, f"{network} cannot be evaluated")
    demand(made.primary_network in made.networks, f"{made.primary_network!r} is not among {made.networks}")


@law("a client's turn only reads the broadcast, which the clients of a process share")
def leaves_the_broadcast(method: str) -> None:
    workplace = Workplace(digits_problem(), settings(method=method))
    made = workplace.method("main")
    if made.changes is not None:
        return  # Every client has its own.
    view = made.open(made.broadcast(made.start(), 0), 0)
    before = pickle.dumps(view)
    made.train(view, workplace.problem.client_data(0), Turn(0, 0, {}))
    demand(pickle.dumps(view) == before, "training on client 0 changed what the server sent")

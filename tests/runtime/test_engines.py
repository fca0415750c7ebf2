"""Engines: processes change nothing, a dead one costs its client the round and not the run."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import subbit.runtime.run
from subbit.core.errors import WorkerError
from subbit.methods.names import method_names
from subbit.runtime.evaluation import evaluate
from subbit.runtime.folder import RunFolder
from subbit.runtime.pool import Pool
from subbit.runtime.run import Progress, run_job
from tests.problems import Scaled, conv_net, digits_problem, mlp, settings, small_vit
from tests.processes import alive, below, wait_until


@pytest.mark.parametrize("method", method_names())
def test_two_workers_and_one_give_the_same_model_and_the_same_ledger(method: str, tmp_path: Path) -> None:
    module = conv_net() if method == "fedavg" else small_vit()
    parts = [np.arange(i * 20, i * 20 + 20) for i in range(5)]
    problem = digits_problem(module, parts)
    summaries, ledgers = [], []
    for workers in (1, 2):
        chosen = settings(
            method=method,
            workers=workers,
            clients=5,
            folder=str(tmp_path),
            name=f"w{workers}",
            participation=0.6,
            batchnorm="average" if method == "fedavg" else "frozen",
        )
        folder = RunFolder.create(chosen, "")
        summaries.append(run_job(problem, chosen, folder).summary)
        ledgers.append((folder.path / "ledger.csv").read_bytes())
    assert ledgers[0] == ledgers[1]
    for key in ("model_sha256", "accuracy", "accuracy_before", "total_bytes", "accuracy_by_round"):
        assert summaries[0][key] == summaries[1][key]


def test_a_head_that_the_server_solves_is_the_same_with_two_workers() -> None:
    """The server's own matrix products use as many threads as a worker's, whatever the machine offers."""
    problem = digits_problem(small_vit())
    found = [
        run_job(problem, settings(method="fedavg", head="lda", rounds=1, workers=workers)).summary["model_sha256"]
        for workers in (1, 2)
    ]
    assert found[0] == found[1]


THREADS = """
import os, torch
from subbit.config.resolve import resolve
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.trial import try_job

torch.set_num_threads(4)
settings = resolve({"method": "fedavg", "rounds": 1, "clients": 2, "limit": 64, "test_limit": 32})
before = len(os.listdir("/proc/self/task"))
problem = build_problem(settings.run)
try_job(problem, settings)
run_job(problem, settings)
assert torch.get_num_threads() == 4
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only this kernel lists threads")
def test_a_run_with_one_thread_starts_no_others(tmp_path: Path) -> None:
    """Threads that wait for work do so by spinning: they take a processor from the clients."""
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # That of scipy, which numba loads, has threads of its own.
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 0


def test_the_trained_network_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last round scores it already; at the end there are the other networks of the method."""
    asked: list[str] = []

    def counted(workplace: Any, engine: Any, state: Any, network: str, *, before: bool = False) -> Any:
        asked.append(network)
        return evaluate(workplace, engine, state, network, before=before)

    monkeypatch.setattr(subbit.runtime.run, "evaluate", counted)
    summary = run_job(digits_problem(), settings(method="deltamask", rounds=1)).summary
    assert sorted(asked) == ["expected", "expected", "sampled", "thresholded"]
    assert summary["accuracy"] == summary["accuracy_expected"] == summary["accuracy_by_round"][-1]


class Deadly(nn.Module):
    """Kills its own process when it meets the poisoned example in a worker."""

    def __init__(self, poison: Any, parent: int) -> None:
        super().__init__()
        self.poison, self.parent = poison, parent
        self.scaled = Scaled()

    def forward(self, images: Any) -> Any:
        if os.getpid() != self.parent and bool((images == self.poison).flatten(1).all(1).any()):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.scaled(images)


def test_a_worker_that_is_killed_costs_its_client_the_round_and_nobody_else() -> None:
    poison = digits_problem().train.inputs[0]
    problem = digits_problem(nn.Sequential(Deadly(poison, os.getpid()), *list(mlp())[1:]))
    chosen = settings(method="fedavg", workers=2, rounds=1)
    summary = run_job(problem, chosen).summary
    assert summary["failures"] == {"died": 1}
    assert summary["uplink_bytes"] > 0


SAME = ("model_sha256", "accuracy", "accuracy_before", "accuracy_by_round", "total_bytes", "failures")


@pytest.mark.parametrize("killed", [1, 2])
def test_workers_that_die_while_idle_cost_nothing(killed: int) -> None:
    """Between two rounds, when nobody works, the report is called: there they are killed."""
    chosen = settings(method="fedavg", workers=2, rounds=3)
    undisturbed = run_job(digits_problem(), chosen).summary

    def kill(progress: Progress) -> None:
        if progress.round_number == 0:
            workers = multiprocessing.active_children()[:killed]
            assert len(workers) == killed
            for worker in workers:
                os.kill(int(worker.pid or 0), signal.SIGKILL)
            for worker in workers:
                wait_until(lambda pid=int(worker.pid or 0): not alive(pid))

    disturbed = run_job(digits_problem(), chosen, report=kill).summary
    assert {key: disturbed[key] for key in SAME} == {key: undisturbed[key] for key in SAME}
    assert disturbed["failures"] == {}


class DeadlyEvaluation(nn.Module):
    """Kills its own process at an evaluation in a worker, as often as there are files left to remove."""

    def __init__(self, bullets: Path, parent: int) -> None:
        super().__init__()
        self.bullets, self.parent = bullets, parent
        self.scaled = Scaled()

    def forward(self, images: Any) -> Any:
        if not self.training and os.getpid() != self.parent:
            for bullet in sorted(self.bullets.iterdir()):
                bullet.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.scaled(images)


def evaluate_under_fire(folder: Path, deaths: int) -> dict[str, Any]:
    folder.mkdir()
    for number in range(deaths):
        (folder / str(number)).touch()
    module = nn.Sequential(DeadlyEvaluation(folder, os.getpid()), *list(mlp())[1:])
    return run_job(digits_problem(module), settings(method="fedavg", workers=2, rounds=1)).summary


def test_an_evaluation_whose_worker_dies_is_repeated(tmp_path: Path) -> None:
    undisturbed, disturbed = evaluate_under_fire(tmp_path / "peace", 0), evaluate_under_fire(tmp_path / "war", 2)
    assert not list((tmp_path / "war").iterdir())
    assert {key: disturbed[key] for key in SAME} == {key: undisturbed[key] for key in SAME}


def test_an_evaluation_that_kills_its_worker_three_times_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"died 3 times .* use fewer workers"):
        evaluate_under_fire(tmp_path / "war", 3)


class Raises(nn.Module):
    def forward(self, images: Any) -> Any:
        if not self.training:
            raise ZeroDivisionError("in the evaluation")
        return images


def test_an_exception_in_a_worker_arrives_with_its_traceback() -> None:
    module = nn.Sequential(Scaled(), Raises(), *list(mlp())[1:])
    with pytest.raises(ZeroDivisionError, match="in the evaluation") as caught:
        run_job(digits_problem(module), settings(method="fedavg", workers=2, rounds=1))
    assert "evaluation_turn" in "".join(caught.value.__notes__)


def collected(_: Any) -> tuple[bool, bool]:
    """Whether garbage is collected here, and not among what was there before."""
    return gc.isenabled(), gc.get_freeze_count() > 1000


def start_nothing(number: int) -> None: ...


def test_a_worker_collects_garbage_once_it_has_started() -> None:
    pool = Pool(1, start_nothing, ())
    try:
        assert list(pool.answers(collected, [None], tries=1)) == [(0, (True, True))]
    finally:
        pool.close()


RUN = ["model=mlp", "head=keep", "clients=4", "limit=200", "rounds=5000", "workers=2", "name=ended"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "subbit", "run", *RUN]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: (tmp_path / "runs" / "ended" / "events.jsonl").exists())
        children = below(process.pid)
        os.kill(process.pid, signal.SIGKILL)
    assert len(children) >= 3
    wait_until(lambda: not any(alive(pid) for pid in children), 5)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
@pytest.mark.parametrize("when", ["workers start", "rounds"])
def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(when: str, tmp_path: Path) -> None:
    """Ctrl-C in a terminal is a signal to all processes of the group."""
    folder = Path("runs") / "ended"
    command = [sys.executable, "-m", "subbit", "run", *RUN]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts what runs in the background with Ctrl-C ignored, and that is inherited.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        if when == "rounds":
            wait_until(lambda: bool(list((tmp_path / folder / "checkpoint").glob("*.json"))))
        # Two workers, the nursery that they come from and the tracker of shared resources.
        wait_until(lambda: len(below(process.pid)) >= 4)
        children = below(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        printed = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    # Not any traceback: a compiler that is interrupted may complain when its half-made objects are thrown away.
    assert "KeyboardInterrupt" not in printed
    assert "multiprocessing" not in printed
    expected = f"interrupted; go on with subbit resume {folder}" if when == "rounds" else "start again with subbit run"
    assert any(line.endswith(expected) for line in printed.splitlines()), printed
    wait_until(lambda: not any(alive(pid) for pid in children), 5)


SLOW_START = """
import ctypes, os, sys, time
from pathlib import Path

def slow():
    if __name__ == "__main__":
        return
    Path("pid").write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60) if "{where}" == "in one call" else time.sleep(60)

class Slow:
    def __reduce__(self):
        return slow, ()

if "{where}" != "reading the problem":
    slow()

if __name__ == "__main__":
    from subbit.runtime.run import run_job
    from tests.problems import digits_problem, mlp, settings
    module = mlp()
    module.slow = Slow()
    run_job(digits_problem(module), settings(method="fedavg", workers=2))
"""


@pytest.mark.parametrize("where", ["in the main module", "in one call", "reading the problem"])
def test_a_worker_that_is_still_starting_ends_with_its_parent(where: str, tmp_path: Path) -> None:
    """One call of C that never lets another thread run stands for the loading of a large library."""
    if where == "in one call" and sys.platform != "linux":
        pytest.skip("only this kernel ends a process whose threads cannot run")
    (tmp_path / "script.py").write_text(SLOW_START.format(where=where))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=environment) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        os.kill(process.pid, signal.SIGKILL)
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(child), 5)

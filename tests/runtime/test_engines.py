"""Engines: processes change nothing, a dead one costs its client the round and not the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from subbit.methods.registry import method_names
from subbit.report.folder import RunFolder
from subbit.runtime.run import run_job
from tests.problems import Scaled, conv_net, digits_problem, mlp, settings, small_vit


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


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    words = ["model=mlp", "head=keep", "clients=4", "limit=200", "rounds=500", "workers=2", "name=killed"]
    command = [sys.executable, "-m", "subbit", "run", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: (tmp_path / "runs" / "killed" / "events.jsonl").exists())
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        os.kill(process.pid, signal.SIGKILL)
    assert len(children) >= 2
    wait_until(lambda: not any(alive(pid) for pid in children))


def wait_until(condition: Callable[[], bool], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""`engine=flower`: the same job in Ray's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flower.job import JOB


def run(folder: Path, name: str, *words: str) -> dict[str, object]:
    """In a process of its own, as a user would: Ray and Flower change their process for good."""
    job = [f"{key}={value}" for key, value in JOB.items()]
    done = subprocess.run(
        [sys.executable, "-m", "subbit", "run", *job, f"name={name}", f"folder={folder}", *words],
        env={**os.environ, "FLWR_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((folder / name / "summary.json").read_text()))


@pytest.mark.timeout(600)
def test_flower_simulation_equals_the_simulator(tmp_path: Path) -> None:
    first = run(tmp_path, "simulated")
    second = run(tmp_path, "flower", "engine=flower", "workers=2")
    assert first["model_sha256"] == second["model_sha256"]
    assert second["failures"] == {}
    assert (tmp_path / "simulated/ledger.csv").read_text() == (tmp_path / "flower/ledger.csv").read_text()

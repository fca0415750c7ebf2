"""`subbit compare` with all trackers in a process of its own, which must not talk to anybody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.wandb_files import read_run

for name in ("tensorboard", "mlflow", "wandb"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'subbit[{name}]'")

COMMAND = [sys.executable, "-m", "subbit", "compare", "fedavg", "fedpm", "--seeds", "2"]
SMALL = ["model=mlp-small", "head=kaiming", "rounds=1", "clients=2", "limit=60", "test_limit=20", "seed=3"]
NAMES = ["fedavg-seed3", "fedavg-seed4", "fedpm-seed3", "fedpm-seed4"]


@pytest.fixture
def callers() -> Iterator[tuple[str, list[object]]]:
    """A place that everybody would call who wants to reach the internet, and who did."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, address = listener.accept()
                except OSError:
                    return
                came.append(address)
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", came
        listener.shutdown(socket.SHUT_RDWR)


def test_one_run_per_contender_and_seed_and_no_call(tmp_path: Path, callers: tuple[str, list[object]]) -> None:
    place, came = callers
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "WANDB_BASE_URL"), place)
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
    done = subprocess.run(
        [*COMMAND, *SMALL, "track=tensorboard,mlflow,wandb"],
        cwd=tmp_path,
        env={**usual, **proxies},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower(), done.stderr
    assert "track=" not in done.stderr, done.stderr
    assert not came
    assert sorted(path.parent.name for path in tmp_path.glob("runs/*/tensorboard")) == NAMES
    assert sorted(read_run(path)["name"] for path in tmp_path.glob("wandb/offline-run-*")) == NAMES

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("subbit").experiment_id
    assert sorted(run.info.run_name for run in client.search_runs([experiment])) == NAMES

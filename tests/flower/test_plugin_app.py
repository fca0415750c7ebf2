"""Plugins on Flower: part of the app's code, loaded by server and nodes, and their checksum in what nodes announce."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from benchmarks.local_deployment import LocalDeployment
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from subbit.config.resolve import resolve, write_toml
from subbit.core import plugins
from subbit.core.errors import ConfigError
from subbit.core.registry import REGISTRIES
from subbit.flower.announcement import configuration_digest
from subbit.flower.lines import write_app
from subbit.flower.server import serve
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from tests.flower.grid import FakeGrid
from tests.flower.job import JOB

PLUGIN = Path(__file__).parents[2] / "examples" / "sign_vote.py"
VALUES = {**JOB, "method": "sign-vote", "limit": 60, "test_limit": 20, "deadline": 60}


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = REGISTRIES["method"]
    monkeypatch.setattr(known, "_things", dict(known._things))
    monkeypatch.setattr(plugins, "_loaded", {})
    plugins.load_file(PLUGIN)


@pytest.mark.usefixtures("a_run")
def test_nodes_end_with_the_model_of_the_simulator(tmp_path: Path) -> None:
    found = []
    for engine in ("simulator", "flower"):
        settings = resolve({**VALUES, "folder": str(tmp_path), "name": engine, "engine": engine})
        problem, folder = build_problem(settings.run), RunFolder.create(settings, "")
        if engine == "simulator":
            found.append(run_job(problem, settings, folder).summary)
        else:
            grid: Any = FakeGrid(settings, tmp_path)
            found.append(serve(grid, problem, folder, resume=False).summary)
    assert found[1]["failures"] == {}
    assert found[0]["model_sha256"] == found[1]["model_sha256"]


@pytest.mark.e2e
def test_a_plugin_on_real_nodes(tmp_path: Path) -> None:
    job = {**JOB, "method": "sign-vote", "deadline": 300}
    with LocalDeployment(tmp_path, job, secure=False) as deployment:
        deployment.superlink()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit()
        summary = deployment.finish()
    settings = resolve({**job, "name": "simulated", "folder": str(tmp_path / "runs")})
    expected = run_job(build_problem(settings.run), settings, RunFolder.create(settings, "")).summary
    assert summary["failures"] == {}
    assert summary["model_sha256"] == expected["model_sha256"]
    print("\nplugin: sign-vote on 2 nodes, model_sha256 equals the simulator's")


NODE = """
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))
import with_plugins
from subbit.flower.announcement import announcement
from subbit.flower.deployment import deployment_settings
from subbit.config.resolve import write_toml

app = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["flwr"]["app"]
assert app["components"] == {
    "serverapp": "with_plugins:server_app", "clientapp": "with_plugins:client_app"
}
assert with_plugins.server_app and with_plugins.client_app
told = announcement({}, lambda: write_toml(deployment_settings(app["config"])), len)["node"]
print(told["configuration"], told["problem"])
"""


def as_a_node(app: Path) -> list[str]:
    """In a process of its own, in the folder into which Flower unpacks an app."""
    done = subprocess.run([sys.executable, "-c", NODE], cwd=app, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip("\n").split(" ", 1)


def test_an_app_carries_its_plugins_and_a_node_without_the_same_file_says_so(tmp_path: Path) -> None:
    settings = resolve(VALUES)
    write_app(tmp_path / "app", settings)
    load_and_validate(tmp_path / "app" / "pyproject.toml")  # As `flwr run` does: it reads the code without running it.
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(tmp_path / "app"))) as bundle:
        bundle.extractall(tmp_path / "node")
    expected = configuration_digest(write_toml(settings))
    assert as_a_node(tmp_path / "node") == [expected, ""]
    changed = tmp_path / "node" / "plugins" / "sign_vote.py"
    changed.write_text(changed.read_text() + "# changed\n")
    digest, problem = as_a_node(tmp_path / "node")
    assert digest == ""
    assert "give the file as it was" in problem
    shutil.rmtree(changed.parent)
    assert "uses the plugin sign_vote.py" in as_a_node(tmp_path / "node")[1]


def test_a_file_that_flower_would_leave_out_is_refused(tmp_path: Path) -> None:
    shutil.copy(PLUGIN, tmp_path / "test_vote.py")
    plugins._loaded.clear()
    REGISTRIES["method"]._things.pop("sign-vote")
    plugins.load_file(tmp_path / "test_vote.py")
    with pytest.raises(ConfigError, match="leaves files with such names out"):
        write_app(tmp_path / "app", resolve(VALUES))


def test_an_app_without_plugins_is_one_file(tmp_path: Path) -> None:
    write_app(tmp_path / "app", resolve({**JOB, "plugins": "none"}))
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["components"]["serverapp"] == "subbit.flower:server_app"


@pytest.mark.timeout(600)
def test_flowers_simulation_loads_them_in_its_processes(tmp_path: Path) -> None:
    words = [f"{key}={value}" for key, value in {**VALUES, "rounds": 1, "deadline": 400, "name": "job"}.items()]
    models = []
    for engine in ("simulator", "flower"):
        command = [sys.executable, "-m", "subbit", "run", "--plugin", str(PLUGIN), *words, f"engine={engine}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        models.append(next(line for line in done.stdout.splitlines() if line.startswith("model ")))
    assert models[0] == models[1]

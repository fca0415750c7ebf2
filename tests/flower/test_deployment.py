"""Real deployments on loopback. One of them belongs to `make test`, the others to `make e2e`.

Each prints what it asserted. The simulator says what a run without faults ends with.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks.local_deployment import LocalDeployment

from subbit.config.resolve import resolve
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from tests.flower.job import JOB


def simulate(folder: Path, **job: Any) -> tuple[dict[str, Any], str]:
    settings = resolve({**JOB, "name": "simulated", "folder": str(folder / "runs"), **job})
    summary = run_job(build_problem(settings.run), settings, RunFolder.create(settings, "")).summary
    return summary, (folder / "runs/simulated/ledger.csv").read_text()


def deploy(folder: Path, *, secure: bool, **job: Any) -> LocalDeployment:
    return LocalDeployment(folder, {**JOB, **job}, secure=secure)


def assert_equal(folder: Path, summary: dict[str, Any], deployment: LocalDeployment, **job: Any) -> None:
    expected, ledger = simulate(folder, **job)
    assert summary["failures"] == {}
    assert summary["model_sha256"] == expected["model_sha256"]
    assert (deployment.results / "ledger.csv").read_text() == ledger


def say(words: str) -> None:
    print(f"\n{words}")


@pytest.mark.timeout(900)
def test_tls_and_node_keys_equal_the_simulator(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=True, deadline=300) as deployment:
        deployment.superlink()
        deployment.register()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit()
        summary = deployment.finish()
    assert_equal(tmp_path, summary, deployment)
    say("TLS + node keys: 2 nodes, 2 rounds, model_sha256 and ledger.csv equal the simulator's")


@pytest.mark.e2e
def test_plain(tmp_path: Path) -> None:
    job = {"method": "fedavg", "head": "probe"}
    with deploy(tmp_path, secure=False, deadline=300, **job) as deployment:
        deployment.superlink()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit()
        deployment.until(lambda: len(deployment.rounds()) == 2, "the first round of the main phase is over")
        assert len(deployment.memories()) >= 2
        summary = deployment.finish()
        deployment.until(lambda: not deployment.memories(), "the nodes forget the finished job", seconds=60)
    assert_equal(tmp_path, summary, deployment, **job)
    say("plain: fedavg on 2 nodes without TLS, model_sha256 and ledger.csv equal the simulator's")


@pytest.mark.e2e
def test_killed_client(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=False, deadline=75) as deployment:
        deployment.superlink()
        deployment.supernode(0)
        victim = deployment.supernode(1)
        deployment.submit()
        deployment.until(lambda: len(deployment.rounds()) == 2, "the first round of the main phase is over")
        deployment.kill(victim)
        summary = deployment.finish()
    last = deployment.rounds()[-1]
    assert last["answered"] == 1
    assert [failure["client"] for failure in last["failures"]] == [1]
    assert set(summary["failures"]) <= {"deadline", "absent"}
    say(f"killed client: the round went on with 1 of 2, counted as {summary['failures']}")


MISBEHAVING = """
import dataclasses
import os
import time

import numpy as np
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

from subbit.flower import client_app as honest
from subbit.wire.frame import Address, Direction, pack_frame, read_header

client_app = ClientApp()


@client_app.query()
def announce(message, context):
    return honest(message, context)


@client_app.train()
def train(message, context):
    turn = int(message.metadata.group_id)
    if context.node_config["partition-id"] != 1:
        return honest(message, context)
    if {slow} and turn == 2:
        time.sleep(600)
    if not {slow} and turn == 4:
        raise RuntimeError("this client raises")
    if not {slow} and turn == 5:
        os._exit(1)
    reply = honest(message, context)
    if not {slow}:
        frame = reply.content["frames"]["0"]
        header, payload = read_header(frame), frame[40:]
        where = Address(
            Direction.UP, 0, header.codec, header.template, header.round_number, header.client, header.size
        )
        if turn == 0:
            payload = np.frombuffer(payload, dtype="<f4").copy()
            payload[0] = np.nan
            frame = pack_frame(payload.tobytes(), where, header.examples)
        elif turn == 1:
            frame = os.urandom(1000)
        elif turn == 2:
            where = dataclasses.replace(where, round_number=0)
            frame = pack_frame(payload, where, header.examples)
        elif turn == 3:
            where = dataclasses.replace(where, template=b"another!")
            frame = pack_frame(payload, where, header.examples)
        reply.content["frames"] = ConfigRecord({{"0": frame}})
    return reply
"""


def misbehaving_app(deployment: LocalDeployment, *, slow: bool) -> Path:
    app = deployment.folder / "misbehaving"
    shutil.copytree(deployment.app, app)
    (app / "misbehaving.py").write_text(MISBEHAVING.format(slow=slow))
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("subbit.flower:client_app", "misbehaving:client_app"))
    return app


@pytest.mark.e2e
def test_slow_client(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=False, deadline=75) as deployment:
        deployment.superlink()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit(misbehaving_app(deployment, slow=True))
        summary = deployment.finish()
    assert summary["failures"] == {"deadline": 1}
    assert deployment.rounds()[-1]["seconds"] < 120
    say("slow client: left out after the deadline of 75 s, counted as deadline, the round went on with 1 of 2")


@pytest.mark.e2e
def test_rubbish_client(tmp_path: Path) -> None:
    # Statistics in float32, so that one of them can be replaced by a NaN.
    with deploy(tmp_path, secure=False, deadline=75, rounds=5, head_codec="float32") as deployment:
        deployment.superlink()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit(misbehaving_app(deployment, slow=False))
        summary = deployment.finish()
    causes = [event["failures"][0]["cause"] for event in deployment.rounds()]
    assert causes[:5] == ["value", "not-a-frame", "round", "template", "error"]
    assert causes[5] in ("error", "deadline")
    assert all(event["answered"] == 1 for event in deployment.rounds())
    say(f"rubbish client: NaN, random bytes, another round, another template, raises, dies: {summary['failures']}")


@pytest.mark.e2e
def test_killed_server_resumes(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=True, deadline=120, rounds=3) as deployment:
        server = deployment.superlink()
        deployment.register()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit()
        deployment.until(lambda: len(deployment.rounds()) == 2, "the first round of the main phase is over")
        deployment.kill(server)
        before = deployment.rounds()
        deployment.superlink()
        deployment.submit()
        summary = deployment.finish()
    assert deployment.rounds()[: len(before)] == before, "seconds and all: those rounds were not run again"
    assert_equal(tmp_path, summary, deployment, rounds=3)
    say("killed server: SIGKILL after round 1 of 3, resumed by flwr run, equals an uninterrupted run")


@pytest.mark.e2e
def test_unregistered_node_is_refused(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=True, deadline=30, quorum=1.0) as deployment:
        deployment.superlink()
        deployment.register()
        deployment.supernode(0)
        stranger = deployment.supernode(1, key=2)
        deployment.submit()
        deployment.until(lambda: "QuorumError" in deployment.log("run"), "the run ends for want of nodes")
        connected = "SuperNode ID" in deployment.log("node-1")
        deployment.kill(stranger)
    assert "1 of 2 clients have a node after 30 s" in deployment.log("run")
    assert not connected
    assert "Attempted to register SuperNode with public key" in deployment.log("superlink")
    assert not (deployment.results / "summary.json").exists()
    say("unregistered node: refused by the SuperLink; the run ended with QuorumError after the deadline")

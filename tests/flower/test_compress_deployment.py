"""The drop-in on real nodes: a SuperLink, two SuperNodes, and a new process for every message."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.local_deployment import LocalDeployment

from tests.flower.job import JOB

PROJECT = """
[project]
name = "averaging"
version = "1.0.0"
description = "Averages vectors"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "you"

[tool.flwr.app.components]
serverapp = "averaging.server_app:app"
clientapp = "averaging.client_app:app"
"""
CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from subbit.flower import compress

def forget(message, context, call_next):
    if context.node_config["partition-id"] == 1 and message.content["config"]["server-round"] == 3:
        if message.metadata.message_type == "train":
            del context.state["subbit-held"]
    return call_next(message, context)

app = ClientApp(mods=[forget, compress(codec="eden", bits=1)])

@app.train()
def train(message, context):
    weight = message.content["arrays"]["weight"].numpy()
    wanted = np.linspace(-1, 1, weight.size, dtype=np.float32) + context.node_config["partition-id"]
    count = message.content["arrays"]["count"].numpy().astype(np.int64) + 1
    arrays = ArrayRecord({"weight": Array(weight + (wanted - weight) / 2), "count": Array(np.asarray(count))})
    metrics = MetricRecord({"num-examples": 1, "loss": float(np.abs(wanted - weight).mean())})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

@app.evaluate()
def evaluate(message, context):
    weight = message.content["arrays"]["weight"].numpy()
    error = np.abs(weight - np.linspace(-1, 1, weight.size) - 0.5).mean()
    return Message(RecordDict({"m": MetricRecord({"num-examples": 1, "error": float(error)})}), reply_to=message)
"""
SERVER = """
import json
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from subbit.flower import compress

app = ServerApp()

@app.main()
def main(grid, context):
    strategy = compress(codec="eden", bits=1).strategy(FedAvg(min_available_nodes=2))
    start = ArrayRecord({"weight": Array(np.full(20000, 3, np.float32)), "count": Array(np.array(0))})
    result = strategy.start(grid, start, num_rounds=5)
    error = float(np.abs(result.arrays["weight"].numpy() - np.linspace(-1, 1, 20000) - 0.5).mean())
    trained = [dict(metrics) for metrics in result.train_metrics_clientapp.values()]
    judged = [dict(metrics) for metrics in result.evaluate_metrics_clientapp.values()]
    found = {"error": error, "train": trained, "evaluate": judged, "refused": dict(strategy.subbit.refused)}
    print("FOUND " + json.dumps(found) + " END", flush=True)
"""


def write_averaging_app(folder: Path) -> Path:
    (folder / "averaging").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "averaging" / "__init__.py").write_text("")
    (folder / "averaging" / "client_app.py").write_text(CLIENT)
    (folder / "averaging" / "server_app.py").write_text(SERVER)
    return folder


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_real_nodes_hold_what_they_were_sent_and_say_when_it_is_gone(tmp_path: Path) -> None:
    with LocalDeployment(tmp_path, {**JOB, "deadline": 300}, secure=False) as deployment:
        deployment.environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
        deployment.superlink()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit(write_averaging_app(tmp_path / "averaging-app"))
        deployment.until(lambda: deployment.run.poll() is not None, "the run is finished")
        log = deployment.log("run")
    printed = re.search(r"FOUND (.*?) END", log, re.DOTALL)
    assert printed is not None, log
    found = json.loads(printed[1].replace("\n", ""))
    assert found["refused"] == {"memory": 1}
    assert [metrics["subbit-bad-frames"] for metrics in found["train"]] == [0, 0, 1, 0, 0]
    assert [metrics["subbit-bad-frames"] for metrics in found["evaluate"]] == [0, 0, 0, 0, 0]
    sent = [int(metrics["subbit-down-bytes-after"]) for metrics in found["train"] + found["evaluate"]]
    print(f"\nbytes down to two nodes, training: {sent[:5]}, evaluation: {sent[5:]}; error {found['error']:.3f}")
    assert 2 * 20_000 < sent[0] < 2 * 21_500  # 8 bits a value.
    assert all(count < 2 * 500 for count in sent[1:5])  # They hold the arrays since the evaluation.
    assert 2 * 2_500 < sent[5] < 2 * 3_500  # One bit a value.
    # From 2.5. Each round multiplies it by sqrt(0.6), 0.6 being what one bit leaves out of a change: 0.7 after five.
    assert found["error"] < 1

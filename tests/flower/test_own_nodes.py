"""Nodes with their own data: the server has none, and learns of the nodes when they connect.

The grid is one of this process (`grid.py`), because nodes must come and go at a given moment; real ones are in
`test_own_nodes_deployed.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message
from PIL import Image
from torch import nn

from subbit.config.resolve import Settings, write_toml
from subbit.core.errors import ConfigError, QuorumError
from subbit.data import load_dataset
from subbit.flower.deployment import deployment_settings
from subbit.flower.node import make_client_app
from subbit.flower.node_memory import NodeMemory
from subbit.flower.own_app import app
from subbit.flower.server import continue_or_create, serve
from subbit.runtime.own_nodes import NOTHING_OWN, Own, server_problem
from subbit.runtime.run import Progress
from tests.flower.grid import FakeGrid

pytestmark = pytest.mark.usefixtures("a_run")
NAMES = ",".join("abcdefghij")
JOB: dict[str, Any] = {
    "dataset": "own", "model": "mlp", "pretrained": False, "head": "kaiming", "method": "fedavg", "clients": 3,
    "rounds": 3, "epochs": 2, "batch_size": 16, "classes": 10, "class_names": NAMES, "input": "uint8 1x8x8",
    "start_with": 2, "quorum": 0.3, "deadline": 2.0,
}  # fmt: skip


class OwnGrid(FakeGrid):
    """Nodes by their `--node-config`."""

    def __init__(self, settings: Settings, folder: Path, nodes: dict[int, dict[str, Any]], own: Own = NOTHING_OWN):
        super().__init__(settings, folder)
        text = write_toml(settings)
        self.app = make_client_app(lambda context: text, self.memory, lambda: own)
        self.online = set()
        for node, config in nodes.items():
            self.join(node, **config)

    def memory(self, context: Context) -> NodeMemory:
        return NodeMemory(self.folder / "memory" / str(context.node_id))

    def _answer(self, order: Message) -> Message | None:
        self.joined.setdefault(order.metadata.dst_node_id, {}).setdefault("partition-id", -1)
        return super()._answer(order)


def write_images(folder: Path, part: int, parts: int, side: int = 8) -> Path:
    """Every `parts`-th digit as a picture in the folder of its class."""
    digits = load_dataset("digits").train
    for number in range(part, 600, parts):
        label, pixels = int(digits.labels[number]), digits.tensor[number, 0].numpy()
        place = folder / "abcdefghij"[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((side, side)).save(place / f"{number}.png")
    return folder


def run(
    tmp_path: Path,
    grid: OwnGrid,
    settings: Settings,
    during: Callable[[int, OwnGrid], object] = lambda number, grid: None,
    own: Own = NOTHING_OWN,
) -> dict[str, Any]:
    folder, resume = continue_or_create(settings, "own")

    def report(progress: Progress) -> None:
        during(progress.round_number, grid)

    return serve(grid, server_problem(settings.run, own), folder, resume=resume, report=report).summary  # type: ignore[arg-type]


def settings_in(tmp_path: Path, **values: Any) -> Settings:
    return deployment_settings({**JOB, "folder": str(tmp_path / "runs"), "name": "run", **values})


@pytest.mark.parametrize(
    "method", ["fedavg", "fedavg head=lda", "deltamask", "subbit", "zampling", "bnn", "hidenseek", "gradmask", "eden"]
)
def test_a_server_without_data_and_nodes_that_come_and_do_not_fit(
    tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, *words = method.split()
    settings = settings_in(tmp_path, method=name, **dict(word.split("=") for word in words))
    nodes = {
        1: {"data": str(write_images(tmp_path / "one", 0, 3)), "name": "one"},
        2: {"data": str(write_images(tmp_path / "two", 1, 3)), "name": "two"},
        3: {"data": str(write_images(tmp_path / "large", 2, 3, side=9)), "name": "large"},
    }
    grid = OwnGrid(settings, tmp_path, nodes)
    third = {"data": str(write_images(tmp_path / "three", 2, 3)), "name": "three"}

    def during(number: int, grid: OwnGrid) -> None:
        if number == 0:
            grid.join(4, **third)

    summary = run(tmp_path, grid, settings, during)
    events = [json.loads(line) for line in (tmp_path / "runs" / "run" / "events.jsonl").read_text().splitlines()]
    asked = [event["participants"] for event in events if event.get("phase") == "main"]
    assert asked[0] == [0, 1]
    assert asked[-1] == [0, 1, 2]
    assert summary["failed_clients"] == 0
    assert set(summary["score_by_client"]) == {"0", "1", "2"}
    if method == "fedavg":  # From a network that knows nothing.
        assert summary["accuracy"] > 0.6 > summary["accuracy_before"] + 0.3
    assert "found inputs uint8 [1, 9, 9], but this job has uint8 [1, 8, 8]" in caplog.text
    assert str(tmp_path) not in caplog.text


def test_the_same_node_is_the_same_client_after_a_restart_and_a_resume(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, method="standalone", evaluate="personal", rounds=4)
    configs = [{"data": str(write_images(tmp_path / name, part, 2)), "name": name} for part, name in enumerate("xy")]
    whole_grid = OwnGrid(
        settings_in(tmp_path, method="standalone", evaluate="personal", rounds=4, name="whole"),
        tmp_path / "whole",
        dict(enumerate(configs, start=1)),
    )
    whole = run(
        tmp_path, whole_grid, settings_in(tmp_path, method="standalone", evaluate="personal", rounds=4, name="whole")
    )

    class Stop(Exception):
        pass

    def stop(number: int, grid: OwnGrid) -> None:
        if number == 1:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path, OwnGrid(settings, tmp_path, dict(enumerate(configs, start=1))), settings, stop)
    # Back in another order, with the same disks: without node keys, Flower gives new identities.
    again = OwnGrid(settings, tmp_path, {2: configs[1], 1: configs[0]})
    summary = run(tmp_path, again, settings)
    assert summary["score_by_client"] == whole["score_by_client"]


def test_examples_are_the_weight_of_a_node_and_have_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_in(tmp_path, most_examples=250, start_with=1, rounds=1)
    nodes = {
        1: {"data": str(write_images(tmp_path / "small", 0, 3)), "name": "small"},
        2: {"data": str(write_images(tmp_path / "greedy", 0, 1)), "name": "greedy"},
    }
    run(tmp_path, OwnGrid(settings, tmp_path, nodes), settings)
    assert "announces 480 training examples, and a node may count for 1 to 250 (most_examples)" in caplog.text


def test_a_second_node_of_the_same_name_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_in(tmp_path, start_with=1, rounds=1)
    nodes = {n: {"data": str(write_images(tmp_path / str(n), n, 3)), "name": "north"} for n in (1, 2)}
    summary = run(tmp_path, OwnGrid(settings, tmp_path, nodes), settings)
    assert set(summary["score_by_client"]) == {"0"}
    assert "announces the name 'north', which node" in caplog.text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "no data: start the node with --node-config"),
        ({"data": "nowhere/at/all"}, "they cannot be read; the node's own log says why"),
    ],
)
def test_a_node_whose_data_cannot_be_used_is_refused_and_says_no_path(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    settings = settings_in(tmp_path, start_with=1, deadline=0.3)
    with pytest.raises(QuorumError, match=words) as caught:
        run(tmp_path, OwnGrid(settings, tmp_path, {1: config}), settings)
    assert "nowhere" not in str(caught.value)


def test_a_strange_class_is_not_told_to_the_server(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "one", 0, 3)
    (folder / "a").rename(folder / "secret")
    settings = settings_in(tmp_path, start_with=1, deadline=0.3)
    with pytest.raises(QuorumError, match="cannot be read") as caught:
        run(tmp_path, OwnGrid(settings, tmp_path, {1: {"data": str(folder)}}), settings)
    assert "secret" not in str(caught.value)


def test_names_of_classes_in_a_table_are_those_of_the_job(tmp_path: Path) -> None:
    """Every node has two of three classes; by their own sorted names, both would call them 0 and 1."""
    for node, names in ((1, "ac"), (2, "bc")):
        rows = [f"{float(name == 'a')},{float(name == 'b')},{name}" for name in names * 20]
        (tmp_path / f"{node}.csv").write_text("\n".join(["x,y,kind", *rows]))
    configs = {node: {"data": f"{tmp_path / str(node)}.csv?label=kind", "name": str(node)} for node in (1, 2)}
    job = {"classes": 3, "class_names": "a,b,c", "input": "float32 2", "epochs": 20, "learning_rate": 0.01}
    settings = settings_in(tmp_path, **job)
    assert run(tmp_path, OwnGrid(settings, tmp_path, configs), settings)["accuracy"] == 1
    unnamed = settings_in(tmp_path, **{**job, "class_names": "none"}, deadline=0.3, name="unnamed")
    with pytest.raises(QuorumError, match="the labels are names"):
        run(tmp_path, OwnGrid(unnamed, tmp_path / "unnamed", configs), unnamed)


def build_module() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def load_data(node: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(int(node["number"]))
    inputs = torch.randn(100, 4, generator=generator)
    return inputs, inputs.sum(dim=1, keepdim=True)


def test_an_app_of_two_functions_and_a_loss(tmp_path: Path) -> None:
    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs - labels).abs().mean()

    made = app(build_module, load_data, loss=loss, method="fedavg", input="float32 4", learning_rate=0.02)
    assert made.server_app is not None
    given = {
        **JOB,
        "model": "given",
        "objective": "given",
        "classes": None,
        "class_names": None,
        "input": "float32 4",
        "head": "keep",
        "learning_rate": 0.02,
        "rounds": 4,
        "epochs": 5,
    }
    settings = settings_in(
        tmp_path,
        **{key: value for key, value in given.items() if value is not None},
        classes="none",
        class_names="none",
    )
    from subbit.objectives.own import OwnObjective

    own = Own(build_module, load_data, OwnObjective(loss))
    grid = OwnGrid(settings, tmp_path, {1: {"number": 1}, 2: {"number": 2}}, own)
    summary = run(tmp_path, grid, settings, own=own)
    assert summary["score_name"] == "loss"
    assert not summary["higher_is_better"]
    assert summary["score"] < 0.5 * summary["score_before"]


def test_functions_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="build_module: found NoneType"):
        app(None, load_data)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="load_data: needs one parameter"):
        app(build_module, lambda: None)  # type: ignore[arg-type, misc]


def test_what_must_be_agreed_on_is_asked_for(tmp_path: Path) -> None:
    for missing, words in (("input", "say what an input is"), ("classes", "say how many classes")):
        with pytest.raises(ConfigError, match=words):
            server_problem(settings_in(tmp_path, **{missing: "none"}).run)
    with pytest.raises(ConfigError, match="found 2 names"):
        server_problem(settings_in(tmp_path, class_names="a,b").run)


def test_sums_that_no_network_has_are_a_failure_of_that_node(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, rounds=1)
    nodes = {n: {"data": str(write_images(tmp_path / str(n), n, 3)), "name": str(n), "partition_id": n} for n in (1, 2)}
    grid = OwnGrid(settings, tmp_path, nodes)

    def lie(order: Message, reply: Message) -> Message:
        observed = reply.content.metric_records.get("observed")
        if observed and "tally_0" in observed:
            observed["tally_0"] = 1e9
        return reply

    grid.answers = {2: lie}
    summary = run(tmp_path, grid, settings)
    assert summary["not_evaluated"] == {"value": 2}
    assert set(summary["score_by_client"]) == {"0"}
    assert np.isfinite(summary["score"])

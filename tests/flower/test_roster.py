"""Which node is whose: strays, liars and nodes that come back are no reason to end a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

import subbit
from subbit.config.resolve import Settings, resolve, write_toml
from subbit.core.errors import ConfigError, QuorumError
from subbit.flower import engine, roster
from subbit.flower.announcement import Expected, announcement, configuration_digest
from subbit.flower.roster import Roster
from subbit.flower.server import serve
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from tests.flower.grid import FakeGrid
from tests.flower.job import JOB

CLIENTS = 3
pytestmark = pytest.mark.usefixtures("a_run")


def settings_in(folder: Path, **values: Any) -> Settings:
    job = {**JOB, "clients": CLIENTS, "rounds": 3, "limit": 60, "test_limit": 20, "deadline": 20.0}
    return resolve({**job, "folder": str(folder), **values})


def make(folder: Path) -> tuple[FakeGrid, Roster]:
    settings = settings_in(folder, engine="flower")
    grid: Any = FakeGrid(settings, folder)
    return grid, Roster(grid, expected(settings), 1.0)


def expected(settings: Settings) -> Expected:
    return Expected(CLIENTS, configuration_digest(write_toml(settings)))


def questions(grid: FakeGrid, node: int) -> int:
    return grid.pushed.count(("query", node))


def said(**changes: Any) -> RecordDict:
    """An announcement that would fit, but for the changes; None leaves a field out."""
    fields: dict[str, Any] = {"partition-id": 1, "num-partitions": CLIENTS, "version": subbit.__version__}
    fields |= {"configuration": "0" * 64, "problem": ""} | {key.replace("_", "-"): changes[key] for key in changes}
    return RecordDict({"node": ConfigRecord({key: value for key, value in fields.items() if value is not None})})


def test_everybody_is_asked_once(tmp_path: Path) -> None:
    grid, asked = make(tmp_path)
    for _ in range(3):
        asked.refresh()
    assert [asked.node_of(client) for client in range(CLIENTS)] == [100, 101, 102]
    assert grid.pushed == [("query", 100), ("query", 101), ("query", 102)]


def test_strays_that_join_a_run_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    simulated = settings_in(tmp_path, name="simulated")
    whole = run_job(build_problem(simulated.run), simulated, RunFolder.create(simulated, "")).summary
    settings = settings_in(tmp_path, name="flower", engine="flower")
    grid: Any = FakeGrid(settings, tmp_path)

    def join(order: Message, reply: Message) -> Message:
        """Lower numbers than everybody else's, so that they are asked and heard first."""
        grid.join(7, partition_id=1, num_partitions=CLIENTS)
        grid.join(8, partition_id=1, num_partitions=5)
        grid.join(9)
        grid.join(10, partition_id="one", num_partitions=CLIENTS)
        grid.join(11, RecordDict())
        return reply

    grid.answers = {2: join}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        summary = serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary
    assert summary["failures"] == {}
    assert summary["model_sha256"] == whole["model_sha256"]
    assert "Refused (taken): node 7 announces partition-id 1, which node 101 holds" in caplog.text
    assert "Refused (partition): node 8 announces partition-id 1 of 5, but the job has clients=3" in caplog.text
    assert "{'taken': 1, 'partition': 3, 'version': 1}" in caplog.text
    assert not [pushed for pushed in grid.pushed if pushed[0] == "train" and pushed[1] < 100]


@pytest.mark.parametrize(
    ("announced", "cause"),
    [
        (RecordDict(), "version"),
        (RecordDict({"node": MetricRecord({"partition-id": 1})}), "version"),
        (said(version=None), "version"),
        (said(version="0.0.9"), "version"),
        (said(version="\x1b[31m" + 10_000 * "x"), "version"),
        (said(version=3), "version"),
        (said(), "configuration"),
        (said(configuration=None), "configuration"),
        (said(configuration=b"0" * 100_000), "configuration"),
        (said(problem="\nunknown key 'kapa'"), "configuration"),
        (said(problem=[1, 2]), "configuration"),
        (said(configuration="fits", partition_id="1"), "partition"),
        (said(configuration="fits", partition_id=True), "partition"),
        (said(configuration="fits", partition_id=1.0), "partition"),
        (said(configuration="fits", partition_id=-1), "partition"),
        (said(configuration="fits", partition_id=2**62), "partition"),
        (said(configuration="fits", partition_id=[1] * 10_000), "partition"),
        (said(configuration="fits", num_partitions=2), "partition"),
        (said(configuration="fits", num_partitions=3.0), "partition"),
        (said(configuration="fits", num_partitions=None), "partition"),
    ],
)
def test_a_hostile_announcement_is_refused(
    tmp_path: Path, announced: RecordDict, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    grid, _ = make(tmp_path)
    fits = announced.get("node", {}).get("configuration") == "fits"
    settings = settings_in(tmp_path)
    asked = Roster(grid, Expected(CLIENTS, "fits") if fits else expected(settings), 1.0)  # type: ignore[arg-type]
    grid.online = set()
    grid.join(5, announced)
    asked.refresh()
    assert asked.refused == {cause: 1}
    assert [asked.node_of(client) for client in range(CLIENTS)] == [None] * CLIENTS
    assert len(caplog.records[0].getMessage()) < 600
    assert caplog.records[0].getMessage().isprintable()


def test_versions_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid, asked = make(tmp_path)
    grid.join(17, said(version="0.0.9"))
    asked.refresh()
    assert f"node 17 runs subbit 0.0.9, this server {subbit.__version__}" in caplog.text


def test_another_configuration_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """How orders travel and where the results go is the server's business."""
    grid, _ = make(tmp_path)
    other = Roster(grid, expected(settings_in(tmp_path, seed=1)), 1.0)  # type: ignore[arg-type]
    other.refresh()
    assert other.refused == {"configuration": CLIENTS}
    assert "makes other settings" in caplog.text
    same = Roster(grid, expected(settings_in(tmp_path / "x", engine="deployment", name="y")), 1.0)  # type: ignore[arg-type]
    same.refresh()
    assert same.refused == {}


def test_a_node_that_cannot_resolve_the_settings_says_why() -> None:
    def fail() -> str:
        raise ConfigError("unknown key 'ronds'")

    assert announcement({}, fail, len)["node"]["problem"] == "unknown key 'ronds'"


def test_an_announcement_is_always_numbers() -> None:
    node = announcement({"partition-id": "zero", "num-partitions": 10**30}, lambda: "", len)["node"]
    assert (node["partition-id"], node["num-partitions"]) == (-1, -1)


def test_a_refused_node_is_asked_again_after_a_while_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid, asked = make(tmp_path)
    grid.online = {100, 101}
    grid.join(5, partition_id=2, num_partitions=7)
    for _ in range(5):
        asked.refresh()
    assert questions(grid, 5) == 1
    monkeypatch.setattr(roster, "ASK_AGAIN_SECONDS", 0.0)
    asked._ask_at[5] = 0.0
    for _ in range(3):
        asked.refresh()
    assert questions(grid, 5) > 2
    assert len(caplog.records) == 1
    grid.join(5, partition_id=2, num_partitions=CLIENTS)
    asked.refresh()
    assert asked.node_of(2) == 5, "started anew with the right words, under the same identity"


def test_nobody_takes_a_client_from_a_node_that_is_alive(tmp_path: Path) -> None:
    """Not by coming later, not by being asked again, and not while the holder is slow to answer."""
    grid, asked = make(tmp_path)
    asked.refresh()
    grid.join(7, partition_id=1, num_partitions=CLIENTS)
    grid.join(200, partition_id=1, num_partitions=CLIENTS)
    grid.kill(101, listed=3)  # Answers nothing, but Flower hears its heartbeats.
    for _ in range(3):
        asked.refresh()
        assert asked.node_of(1) == 101
    asked.refresh()
    assert asked.node_of(1) == 7, "the first that announced it after the one that is gone"
    grid.online.add(101)
    for _ in range(2):
        asked.refresh()
    assert asked.node_of(1) == 7, "now that one holds it"
    grid.online.discard(7)
    asked.refresh()
    assert asked.node_of(1) == 200


def test_a_holder_that_comes_back_as_somebody_else_lets_go(tmp_path: Path) -> None:
    grid, asked = make(tmp_path)
    asked.refresh()
    grid.online = {100, 102}
    asked.refresh()
    assert asked.node_of(1) is None
    grid.join(101, partition_id=9, num_partitions=CLIENTS)
    asked.refresh()
    assert asked.node_of(1) is None
    grid.join(7, partition_id=1, num_partitions=CLIENTS)
    asked.refresh()
    assert asked.node_of(1) == 7


def test_a_node_restarted_under_a_new_identity_loses_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle of its turn. Flower lists the old identity for a while, then says that it is gone."""
    monkeypatch.setattr(engine, "REFRESH_SECONDS", 0.0)
    simulated = settings_in(tmp_path, name="simulated")
    whole = run_job(build_problem(simulated.run), simulated, RunFolder.create(simulated, "")).summary
    settings = settings_in(tmp_path, name="flower", engine="flower")
    grid: Any = FakeGrid(settings, tmp_path)

    def restart(order: Message, reply: Message) -> Message | None:
        if order.metadata.group_id == "2" and order.metadata.dst_node_id == 101:
            grid.waiting[order.metadata.message_id] = order
            grid.kill(101, listed=3)
            grid.join(200, partition_id=1, num_partitions=CLIENTS)
            return None
        return reply

    grid.answers = {1: restart}
    summary = serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary
    assert summary["failures"] == {}
    assert summary["model_sha256"] == whole["model_sha256"]
    assert ("train", 200) in grid.pushed


def test_an_announcement_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    grid, asked = make(tmp_path)
    grid.join(5)
    grid.unreadable = {5}
    asked.refresh()
    assert asked.refused["record"] == 1
    assert asked.node_of(0) is not None or asked.refused["record"] == 1


def test_too_few_nodes_names_those_that_were_refused(tmp_path: Path) -> None:
    grid, asked = make(tmp_path)
    grid.online = {100}
    grid.join(17, said(version="0.0.9"))
    with pytest.raises(QuorumError, match=r"1 of 3 clients.* Refused: node 17 runs subbit 0\.0\.9"):
        asked.wait(range(CLIENTS), 0.5)


def test_the_log_of_refusals_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(roster, "MOST_LINES", 5)
    grid, asked = make(tmp_path)
    for node in range(1000, 1020):
        grid.join(node)
    asked.refresh()
    assert asked.refused == {"partition": 20}
    assert len(caplog.records) == 6


def test_a_crowd_that_never_answers_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh asks and hears two. Eleven nodes are asked after six, and each is heard within six more."""
    monkeypatch.setattr(roster, "AT_ONCE", 2)
    grid, asked = make(tmp_path)
    for node in range(1, 9):
        grid.join(node)
        grid.kill(node, listed=10**6)
    asked.refresh()
    assert len(grid.pushed) == 2
    for _ in range(11):
        asked.refresh()
    assert [asked.node_of(client) for client in range(CLIENTS)] == [100, 101, 102]
    assert len(grid.pulled) <= 12 * 2

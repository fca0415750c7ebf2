"""The engine against the simulator, and against clients that do what they should not.

The grid is one of this process (`grid.py`), because faults must come at a given moment; real ones are in
`test_deployment.py`.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict

from subbit.config.load import Settings, resolve
from subbit.errors import ConfigError, QuorumError
from subbit.flower import engine, roster
from subbit.flower.server import continue_or_create, serve
from subbit.report.folder import RunFolder
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job
from subbit.wire.frame import Address, Direction, pack_frame, read_header
from tests.flower.grid import Answer, FakeGrid
from tests.flower.job import JOB

CLIENTS = 3
VALUES = {**JOB, "clients": CLIENTS, "rounds": 3, "limit": 60, "test_limit": 20, "deadline": 0.5}

pytestmark = pytest.mark.usefixtures("a_run")


def settings_in(folder: Path, **values: Any) -> Settings:
    return resolve({**VALUES, "folder": str(folder), **values})


def simulated(folder: Path, **values: Any) -> dict[str, Any]:
    settings = settings_in(folder, name="simulated", **values)
    problem = build_problem(settings.run)
    return run_job(problem, settings, RunFolder.create(settings, "")).summary


def on_flower(folder: Path, answers: dict[int, Answer] | None = None, **values: Any) -> dict[str, Any]:
    settings = settings_in(folder, name="flower", engine="flower", **values)
    problem = build_problem(settings.run)
    return serve(fake(settings, folder, answers), problem, RunFolder.create(settings, ""), resume=False).summary


def fake(settings: Settings, folder: Path, answers: dict[int, Answer] | None = None) -> Any:
    return FakeGrid(settings, folder, answers)


def ledgers(folder: Path) -> tuple[str, str]:
    return (folder / "simulated/ledger.csv").read_text(), (folder / "flower/ledger.csv").read_text()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"method": "fedavg", "head": "probe", "participation": 0.67},
        {"method": "gradmask", "participation": 0.34, "selection": "high-loss", "select": "head", "head": "lda"},
    ],
)
def test_same_model_and_same_ledger_as_the_simulator(tmp_path: Path, values: dict[str, Any]) -> None:
    """FedAvg adds floats, so it would notice an order of replies that depends on the engine."""
    assert simulated(tmp_path, **values)["model_sha256"] == on_flower(tmp_path, **values)["model_sha256"]
    first, second = ledgers(tmp_path)
    assert first == second


def replace_frame(reply: Message, frame: bytes) -> Message:
    records = reply.content
    records["frames"] = ConfigRecord({"0": frame})
    return reply


def rubbish(order: Message, reply: Message) -> Message:
    return replace_frame(reply, bytes(range(200)))


def another_round(order: Message, reply: Message) -> Message:
    frame = reply.content["frames"]["0"]
    return replace_frame(reply, forged(frame, round_number=read_header(frame).round_number + 1))


def another_template(order: Message, reply: Message) -> Message:
    return replace_frame(reply, forged(reply.content["frames"]["0"], template=b"8 bytes!"))


def not_a_number(order: Message, reply: Message) -> Message:
    """A well-formed frame of float32 whose first value is not a number."""
    frame = bytearray(reply.content["frames"]["0"])
    values = np.frombuffer(bytes(frame[40:]), dtype="<f4").copy()
    values[0] = np.nan
    return replace_frame(reply, forged(bytes(frame), payload=values.tobytes()))


def forged(frame: bytes, payload: bytes | None = None, **changes: Any) -> bytes:
    """The frame with some fields of its header changed and a checksum that fits."""
    header = read_header(frame)
    where = Address(
        Direction.UP, header.part, header.codec, header.template, header.round_number, header.client, header.size
    )
    return pack_frame(
        frame[40:] if payload is None else payload, dataclasses.replace(where, **changes), header.examples
    )


def too_long(order: Message, reply: Message) -> Message:
    return replace_frame(reply, bytes(10**7))


def wrong_types(order: Message, reply: Message) -> Message:
    return Message(RecordDict({"reply": MetricRecord({"loss": 1.0})}), reply_to=order)


def text_for_a_frame(order: Message, reply: Message) -> Message:
    reply.content["frames"] = ConfigRecord({"0": "text"})
    return reply


def infinite_observation(order: Message, reply: Message) -> Message:
    reply.content["observed"] = MetricRecord({"loss": float("inf")})
    return reply


def no_answer(order: Message, reply: Message) -> None:
    return None


def raises(order: Message, reply: Message) -> Message:
    return Message(Error(2, "\x1b[31mred\nlines"), reply_to=order)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (rubbish, "not-a-frame"),
        (another_round, "round"),
        (another_template, "template"),
        (too_long, "length"),
        (wrong_types, "record"),
        (text_for_a_frame, "record"),
        (infinite_observation, "value"),
        (no_answer, "deadline"),
        (raises, "error"),
    ],
)
def test_a_bad_client_is_counted_by_cause_and_the_round_goes_on(tmp_path: Path, answer: Answer, cause: str) -> None:
    summary = on_flower(tmp_path, {1: answer}, rounds=1, head="kaiming", select="all: weights")
    assert summary["failures"] == {cause: 1}
    event = json.loads((tmp_path / "flower/events.jsonl").read_text().splitlines()[-1])
    assert event["answered"] == CLIENTS - 1
    assert event["failures"][0]["client"] == 1
    assert event["failures"][0]["message"].isprintable()


def test_not_a_number_in_a_frame_of_floats(tmp_path: Path) -> None:
    values = {"method": "fedavg", "head": "keep", "rounds": 1}
    assert on_flower(tmp_path, {2: not_a_number}, **values)["failures"] == {"value": 1}


def test_a_killed_server_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Killed after every client answered in round 1: their memories are one turn ahead of the checkpoint."""
    whole = simulated(tmp_path)
    settings = settings_in(tmp_path, name="flower", engine="flower")
    problem = build_problem(settings.run)

    class Killed(BaseException):
        pass

    def stop(progress: Any) -> None:
        if progress.round_number == 0:
            raise Killed

    grid = fake(settings, tmp_path)
    folder, resume = continue_or_create(settings, "")
    assert not resume
    with pytest.raises(Killed):
        serve(grid, problem, folder, resume=False, report=stop)
    _one_round_more(grid, problem, folder)
    folder, resume = continue_or_create(settings, "")
    assert resume
    summary = serve(fake(settings, tmp_path), problem, folder, resume=True).summary
    assert summary["model_sha256"] == whole["model_sha256"]
    first, second = ledgers(tmp_path)
    assert first == second
    folder, resume = continue_or_create(settings, "")
    assert not resume, "a finished run is not continued"


def _one_round_more(grid: Any, problem: Problem, folder: RunFolder) -> None:
    """Everything of the next round but the checkpoint."""
    before = set((folder.path / "checkpoint").iterdir())
    kept = {path: path.read_bytes() for path in before}

    class Killed(BaseException):
        pass

    def stop(progress: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        serve(grid, problem, folder, resume=True, report=stop)
    for path in set((folder.path / "checkpoint").iterdir()) - before:
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)


def test_a_node_that_lost_its_memory_is_sent_the_head_again(tmp_path: Path) -> None:
    lost: list[int] = []

    def forget(order: Message, reply: Message) -> Message:
        """After round 0 of the main phase (turn 1), as if the node had got a new disk."""
        if order.metadata.group_id == "1":
            for path in (tmp_path / "memory/101").rglob("*.safetensors"):
                path.unlink()
            lost.append(1)
        return reply

    summary = on_flower(tmp_path, {1: forget})
    assert lost == [1]
    assert summary["failures"] == {"memory": 1}
    heads = [line for line in ledgers_of_flower(tmp_path) if ",down,head," in line]
    assert [line.split(",")[1:3] for line in heads] == [["0", "0"], ["0", "1"], ["0", "2"], ["2", "1"]]


def ledgers_of_flower(folder: Path) -> list[str]:
    return (folder / "flower/ledger.csv").read_text().splitlines()


def test_too_few_nodes_is_an_error_after_the_deadline(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, engine="flower")
    grid = fake(settings, tmp_path)
    grid.online = {101}
    with pytest.raises(
        QuorumError, match=r"1 of 3 clients have a node after 0.5 s .* partition-ids 0, 2. 2 are needed"
    ):
        serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False)


def test_a_missing_node_above_the_quorum_is_left_out(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, name="flower", engine="flower", rounds=1)
    grid = fake(settings, tmp_path)
    grid.online = {100, 102}
    summary = serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary
    assert summary["failures"] == {"absent": 2}


def test_a_node_of_another_job_is_named(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, engine="flower")
    grid = fake(settings, tmp_path)
    grid.clients = 5
    with pytest.raises(ConfigError, match=r"node 10\d announces partition-id \d of 5, but the job has clients=3"):
        roster.Roster(grid, CLIENTS, 1.0).refresh()


def test_replies_are_taken_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is held in memory grows with the number of clients."""
    monkeypatch.setattr(engine, "PULL_AT_ONCE", 2)
    settings = settings_in(tmp_path, engine="flower", rounds=1, clients=5)
    grid = fake(settings, tmp_path)
    serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False)
    assert max(grid.pulled[1:]) == 2

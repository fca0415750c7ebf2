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

from subbit.config.resolve import Settings, resolve
from subbit.core.errors import QuorumError
from subbit.flower import engine
from subbit.flower.records import FINISHED
from subbit.flower.server import continue_or_create, serve
from subbit.runtime.folder import RunFolder
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
        {"method": "standalone", "participation": 0.34, "selection": "high-loss", "select": "auto", "head": "kaiming"},
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


def test_replies_are_taken_one_at_a_time(tmp_path: Path) -> None:
    """Nothing that is held in memory grows with the number of clients."""
    settings = settings_in(tmp_path, engine="flower", rounds=1, clients=5)
    grid = fake(settings, tmp_path)
    serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False)
    assert max(grid.pulled) == 1


def test_a_finished_job_is_forgotten_by_the_nodes(tmp_path: Path) -> None:
    seen = []

    def look(order: Message, reply: Message) -> Message:
        seen.append(len(list((tmp_path / "memory").rglob("*.safetensors"))))
        return reply

    assert on_flower(tmp_path, {2: look})["failures"] == {}
    assert max(seen) >= CLIENTS
    assert list((tmp_path / "memory").rglob("*.safetensors")) == []


def test_the_networks_of_a_personal_method_stay_where_they_are(tmp_path: Path) -> None:
    summary = on_flower(tmp_path, method="lg-fedavg", head="kaiming", select="auto", rounds=1)
    assert summary["failures"] == {}
    assert len(list((tmp_path / "memory").rglob("*.safetensors"))) == CLIENTS


@pytest.mark.parametrize("fails", ["push_messages", "pull_messages", "get_node_ids"])
def test_a_good_run_cannot_fail_at_its_very_end(tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FINISH_SECONDS", 0.3)
    settings = settings_in(tmp_path, name="flower", engine="flower", rounds=1)
    grid = fake(settings, tmp_path)
    works = getattr(grid, fails)

    def fail(*arguments: Any) -> Any:
        if (tmp_path / "flower/summary.json").exists():
            raise ConnectionError("the SuperLink is gone")
        return works(*arguments)

    monkeypatch.setattr(grid, fails, fail)
    assert serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary["rounds"] == 1


def test_a_node_that_does_not_say_goodbye_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FINISH_SECONDS", 0.3)
    settings = settings_in(tmp_path, name="flower", engine="flower", rounds=1)
    grid = fake(settings, tmp_path)
    grid.unanswered = {FINISHED}
    assert serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary["rounds"] == 1


def observed(**numbers: float) -> Answer:
    def answer(order: Message, reply: Message) -> Message:
        if order.content["order"]["purpose"] == "evaluate":
            reply.content["observed"] = MetricRecord(dict(numbers))
        return reply

    return answer


@pytest.mark.parametrize(
    "numbers",
    [{}, {"correct": 1.0}, {"examples": 1.0}, {"correct": 9.0, "examples": 2.0}, {"correct": -1.0, "examples": 2.0}],
)
def test_whoever_lies_about_its_accuracy_is_left_out_of_the_mean(tmp_path: Path, numbers: dict[str, float]) -> None:
    values = {"method": "lg-fedavg", "head": "kaiming", "select": "auto", "rounds": 1}
    honest = on_flower(tmp_path / "honest", **values)["accuracy_by_client"]
    summary = on_flower(tmp_path, {1: observed(**numbers)}, **values)
    assert summary["accuracy_by_client"] == {"0": honest["0"], "2": honest["2"]}


def test_observations_are_numbers_that_can_be_added(tmp_path: Path) -> None:
    """Two of 1.7e308 are infinite, which is no JSON."""

    def huge(order: Message, reply: Message) -> Message:
        reply.content["observed"] = MetricRecord({"loss": 1.7e308})
        return reply

    summary = on_flower(tmp_path, {1: huge}, rounds=1, head="kaiming", select="all: weights")
    assert summary["failures"] == {"value": 1}


def test_names_of_observations_may_differ(tmp_path: Path) -> None:
    def other(order: Message, reply: Message) -> Message:
        reply.content["observed"] = MetricRecord({"surprise": 3.0})
        return reply

    assert on_flower(tmp_path, {1: other}, rounds=1, head="kaiming", select="all: weights")["failures"] == {}


def test_a_memory_that_the_client_cannot_have_is_refused(tmp_path: Path) -> None:
    def lie(order: Message, reply: Message) -> Message:
        reply.content["reply"] = ConfigRecord({"kept": 77})
        return reply

    assert on_flower(tmp_path, {1: lie}, rounds=1, head="kaiming", select="all: weights")["failures"] == {"record": 1}


@pytest.mark.parametrize("cause", ["disk", "quota", "folder"])
def test_a_node_that_cannot_keep_a_memory_costs_its_own_turn(tmp_path: Path, cause: str) -> None:
    settings = settings_in(tmp_path, name="flower", engine="flower")
    grid = fake(settings, tmp_path)
    folder = tmp_path / "memory/101"
    if cause == "disk":
        folder.parent.mkdir()
        folder.write_text("a file where the folder should be")
    elif cause == "folder":
        (folder / "subbit-memory/photos").mkdir(parents=True)
    else:
        grid.quota = {101: 100.0}
    summary = serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary
    assert summary["failures"] == {cause: 3}, "of the head phase there is nothing to keep"


def test_an_answer_that_flower_cannot_read_costs_its_own_turn(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, name="flower", engine="flower", head="kaiming", select="all: weights")
    grid = fake(settings, tmp_path)

    def spoil(order: Message, reply: Message) -> Message:
        grid.unreadable = {101}
        return reply

    grid.answers = {0: spoil}
    summary = serve(grid, build_problem(settings.run), RunFolder.create(settings, ""), resume=False).summary
    assert summary["failures"] == {"record": 3}

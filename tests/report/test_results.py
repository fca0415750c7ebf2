"""What a run writes for others to read: one committed schema, made of the classes, and real runs held against it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from tests.problems import digits_problem, settings

from subbit.core.errors import RunFolderError
from subbit.core.json_records import as_json
from subbit.runtime.client import client_turn
from subbit.runtime.engines import InProcess
from subbit.runtime.events import Before, Failed, MainRound, read_event
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.results import Codecs, Summary
from subbit.runtime.run import Result, run_job
from subbit.runtime.workplace import Workplace

ROOT = Path(__file__).parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "results.schema.json").read_text())


def validate(found: dict[str, Any], name: str) -> None:
    """Against one of the schema's definitions, and against the whole, which lets through exactly one of them."""
    Draft202012Validator({**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{name}"}]}).validate(found)
    Draft202012Validator(SCHEMA).validate(found)


class OneFails(InProcess):
    """Client 1 fails in the first round, and cannot be evaluated ever."""

    def __init__(self, workplace: Workplace) -> None:
        super().__init__(workplace, threads=1)
        self.workplace = workplace

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for order in orders:
            if order.client == 1 and (order.purpose == "evaluate" or (order.phase, order.round_number) == ("main", 0)):
                yield Reply(1, failure=Failure("training", "as in the test"))
            else:
                yield client_turn(self.workplace, order)


def finished(folder: Path, make_engine: Any = None, **values: Any) -> tuple[Result, list[dict[str, Any]]]:
    job = settings(folder=str(folder), name="a", **values)
    result = run_job(digits_problem(), job, RunFolder.create(job, ""), make_engine=make_engine)
    return result, [json.loads(line) for line in (folder / "a" / "events.jsonl").read_text().splitlines()]


RUNS: dict[str, dict[str, Any]] = {
    "masks": {"method": "deltamask"},
    "an inexact codec, not evaluated in each round": {"method": "deltamask", "codec": "bfuse", "evaluate_every": 2},
    "a head phase and a link": {"method": "fedavg", "head": "lda", "link_mbit": 10.0},
    "chosen by loss": {"method": "fedavg", "selection": "high-loss", "participation": 0.67},
    "personal": {"method": "fedmask"},
    "one network, judged by clients": {"method": "fedavg", "evaluate": "personal"},
    "private": {"method": "fedavg", "privacy": "run", "batch_size": 40, "optimizer": "sgd"},
    "failures": {"method": "fedavg", "quorum": 0.5, "make_engine": OneFails},
    "failures of a personal method": {"method": "fedmask", "quorum": 0.5, "make_engine": OneFails},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_what_the_schema_says(name: str, tmp_path: Path) -> None:
    result, events = finished(tmp_path, **RUNS[name])
    written = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert written == result.summary == as_json(result.numbers)
    assert list(written) == list(result.summary)
    validate(written, "Summary")
    for event in events:
        validate(event, "Before" if event["event"] == "before" else f"{event['phase'].title()}Round")
        assert as_json(read_event(event)) == event
        assert list(as_json(read_event(event))) == list(event)
    assert [event["event"] for event in events].count("before") == 1
    assert ("privacy" in written) == (name == "private")
    assert ("accuracy_by_client" in written) == ("personal" in name or "judged" in name)
    assert ("link_hours" in written) == ("link" in name) == any("link_seconds" in event for event in events)
    assert ("not_evaluated" in written) == (name == "failures of a personal method")
    assert any(event.get("failures") for event in events) == ("failures" in name) == bool(written["failed_clients"])
    assert ("accuracy_sampled" in written) == (written["method"] == "deltamask")
    assert ("false_flips_per_upload" in written) == (RUNS[name].get("codec") == "bfuse")
    assert (None in written["accuracy_by_round"]) == ("not evaluated" in name)


def test_what_is_committed_is_what_the_classes_say() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "results_schema.py"))
    Draft202012Validator.check_schema(SCHEMA)
    assert script["SCHEMA"].read_text() == script["schema_text"](), "run python scripts/results_schema.py"
    page = script["PAGE"].read_text()
    assert script["rendered_page"](page) == page, "run python scripts/results_schema.py"
    for name, kind in SCHEMA["$defs"].items():
        assert f"<!-- keys: {name} -->" in page
        assert all(value["description"] for value in kind["properties"].values())


SUMMARY = Summary(
    name="a",
    method="fedavg",
    preset="default",
    model="mlp",
    pretrained=False,
    dataset="digits",
    split="0",
    clients=2,
    participants=2,
    rounds=1,
    seed=0,
    parameters=3,
    objective="classification",
    score_name="accuracy",
    higher_is_better=True,
    score=0.5,
    score_before=0.25,
    scores={"accuracy": 0.5, "loss": 1.0},
    accuracy=0.5,
    accuracy_before=0.25,
    network="trained",
    uplink_bpp=32.0,
    downlink_bpp=32.0,
    uplink_bytes=24,
    downlink_bytes=24,
    one_off_bytes=0,
    total_bytes=48,
    failed_clients=0,
    failures={},
    codecs=Codecs(("dense",), ("dense",)),
    score_by_round=(0.5,),
    accuracy_by_round=(0.5,),
    bytes_by_round=(48,),
    seconds=1.0,
    seconds_this_process=1.0,
    model_sha256="0",
    versions={"python": "3.11"},
    network_scores={"expected": 0.5},
    score_by_client={0: 0.5},
    accuracies={"expected": 0.5},
    accuracy_by_client={0: 0.5},
)


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda summary: summary.pop(key)


def with_(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda summary: summary.update(values)


@pytest.mark.parametrize(
    "damage",
    [
        without("score"),
        without("schema"),
        with_(schema=2),
        with_(acuracy=0.5),
        with_(score="0.5"),
        with_(accuracy_expected="0.5"),
        with_(accuracy_by_round=0.5),
        with_(accuracy_by_client={"first": 0.5}),
        with_(link_hours=None),
        with_(total_bytes=0.5),
        with_(codecs={"up": []}),
    ],
)
def test_the_schema_refuses_what_no_run_writes(damage: Callable[[dict[str, Any]], object]) -> None:
    summary = as_json(SUMMARY)
    validate(summary, "Summary")
    damage(summary)
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(summary)


def test_keys_come_in_the_order_of_the_fields_and_nothing_is_null_that_may_be_missing() -> None:
    failed = Failed(2, "deadline", "no answer")
    event = MainRound(
        round=0,
        participants=(1, 2),
        answered=1,
        failures=(failed,),
        observations={"loss": 0.5},
        score=None,
        seconds=1.0,
        uplink_bpp=0.25,
        total_bytes=7,
    )
    assert json.dumps(as_json(event)) == (
        '{"event": "round", "phase": "main", "round": 0, "participants": [1, 2], "answered": 1, "failures": '
        '[{"client": 2, "cause": "deadline", "message": "no answer"}], "observations": {"loss": 0.5}, "score": '
        'null, "seconds": 1.0, "uplink_bpp": 0.25, "total_bytes": 7}'
    )
    assert read_event(as_json(event)) == event
    assert as_json(Before(score=0.5, scores={"f1": 0.5})) == {"event": "before", "score": 0.5, "scores": {"f1": 0.5}}
    assert "accuracy_expected" in as_json(SUMMARY)
    assert as_json(SUMMARY)["accuracy_by_client"] == {"0": 0.5}


@pytest.mark.parametrize(
    "line", ['{"event": "after"}', '{"event": "before"}', '{"event": "round", "phase": "tail"}', "[]"]
)
def test_a_line_that_is_no_event_is_one_sentence(line: str, tmp_path: Path) -> None:
    folder = RunFolder.create(settings(folder=str(tmp_path), name="a"), "")
    (folder.path / "events.jsonl").write_text(line + "\n")
    with pytest.raises(RunFolderError, match=r"events\.jsonl cannot be read"):
        folder.read_events()


def test_a_result_has_types_and_attributes(tmp_path: Path) -> None:
    result, _ = finished(tmp_path, method="deltamask")
    assert result.accuracy == result.numbers.accuracy == result.summary["accuracy"]
    assert result.accuracy_sampled == result.numbers.accuracies["sampled"]  # What has no property is found by its key.
    assert not hasattr(result, "privacy")

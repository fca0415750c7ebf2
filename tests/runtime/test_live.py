"""News of the round in progress: there while it goes on, gone when the run is finished, of no consequence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from subbit.core.errors import QuorumError
from subbit.runtime.check import check_run
from subbit.runtime.engines import InProcess
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Failure, Order, Reply
from subbit.runtime.run import Progress, run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings

Lines = list[dict[str, Any]]


def lines(run: Path) -> Lines:
    return [json.loads(line) for line in (run / "live.jsonl").read_text().splitlines()]


class Reading(InProcess):
    """Client 1 fails if it is to. After every reply, what a watcher could have read is noted."""

    def __init__(self, workplace: Workplace, run: Path, failing: bool = True) -> None:
        super().__init__(workplace, threads=1)
        self.run, self.failing, self.seen = run, failing, list[Lines]()

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for reply in super().train(orders):
            failed = Reply(reply.client, failure=Failure("training", "as in the test"))
            yield failed if self.failing and reply.client == 1 else reply
            self.seen.append(lines(self.run))


def folder_for(tmp_path: Path, name: str = "a", **values: Any) -> RunFolder:
    return RunFolder.create(settings(folder=str(tmp_path), name=name, **values), "")


@pytest.mark.parametrize("workers", [1, 2])
def test_news_comes_inside_a_round_and_is_gone_at_the_end(tmp_path: Path, workers: int) -> None:
    folder = folder_for(tmp_path, method="fedavg", workers=workers)
    heard: list[Lines] = []

    def listen(progress: Progress) -> None:
        heard.append(lines(folder.path))

    run_job(digits_problem(), folder.settings, folder, report=listen)
    assert [news[0]["round"] for news in heard] == [0, 1]
    for news in heard:
        assert news[0]["clients"] == [0, 1, 2]
        assert sorted(line["client"] for line in news[1:]) == [0, 1, 2]
        assert all(line["bytes"] > 1000 and "cause" not in line for line in news[1:])
    assert not (folder.path / "live.jsonl").exists()


def test_every_reply_is_there_before_the_next(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, method="fedavg", rounds=1)
    engines: list[Reading] = []

    def engine(workplace: Workplace) -> Reading:
        engines.append(Reading(workplace, folder.path))
        return engines[0]

    run_job(digits_problem(), folder.settings, folder, make_engine=engine)
    assert [len(news) for news in engines[0].seen] == [2, 3, 4]
    failed = engines[0].seen[1][2]
    assert (failed["client"], failed["cause"], failed["message"]) == (1, "training", "as in the test")


def test_a_run_that_stops_says_why(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, method="fedavg", quorum=1.0)
    with pytest.raises(QuorumError) as stopped:
        run_job(digits_problem(), folder.settings, folder, make_engine=lambda at: Reading(at, folder.path))
    *_, last = lines(folder.path)
    assert (last["event"], last["error"]) == ("stopped", str(stopped.value))


def test_interrupted_and_resumed_without_old_news(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    folder = folder_for(tmp_path, method="fedavg")
    with pytest.raises(KeyboardInterrupt):
        run_job(digits_problem(), folder.settings, folder, report=interrupt)
    assert lines(folder.path)[-1]["error"] == "interrupted"
    assert all(finding.damage is None for finding in check_run(folder.path))
    heard: list[Lines] = []
    again = RunFolder.open(folder.path)
    run_job(
        digits_problem(), again.settings, again, resume=True, report=lambda progress: heard.append(lines(folder.path))
    )
    assert [news[0]["round"] for news in heard] == [1]
    assert not (folder.path / "live.jsonl").exists()


def test_a_run_that_cannot_write_its_news_gives_the_same_result(tmp_path: Path) -> None:
    usual, without = (
        folder_for(tmp_path, "usual", method="deltamask"),
        folder_for(tmp_path, "without", method="deltamask"),
    )
    (without.path / "live.jsonl").mkdir()
    results = [run_job(digits_problem(), each.settings, each).summary for each in (usual, without)]
    same = ("model_sha256", "score_by_round", "bytes_by_round", "total_bytes")
    assert [results[0][key] for key in same] == [results[1][key] for key in same]
    assert (without.path / "live.jsonl").is_dir()


def test_what_lies_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    folder, other = folder_for(tmp_path, method="fedavg", rounds=1), tmp_path / "diary.txt"
    other.write_text("dear diary")
    (folder.path / "live.jsonl").symlink_to(other)
    run_job(digits_problem(), folder.settings, folder)
    assert other.read_text() == "dear diary"

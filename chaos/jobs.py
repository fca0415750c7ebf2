"""The jobs to disturb, their results without disturbance, and their results if given turns fail."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.processes import Process, subbit
from chaos.trips import count_changes

COMMON = "limit=160 test_limit=60 rounds=4 batch_size=16"
JOBS = {
    "deltamask": "model=mlp head=keep clients=4 method=deltamask",
    "deltamask-lda": "model=mlp head=lda select=backbone:weights clients=4 method=deltamask",
    "subbit": "model=mlp-small head=keep clients=6 participation=0.5 method=subbit",
    "fedavg-eden": "model=mlp head=keep clients=4 method=fedavg down_codec=eden",
    "fedavg-eden-lda": "model=mlp-small head=lda clients=6 participation=0.5 method=fedavg codec=eden down_codec=eden",
    "topk": "model=mlp-small head=keep clients=4 method=topk",
    "fedmask": "model=mlp-small head=keep clients=4 method=fedmask",
    "fedmask-some": "model=mlp-small head=keep clients=6 participation=0.5 method=fedmask",
    "high-loss": "model=mlp-small head=keep clients=6 participation=0.5 selection=high-loss method=gradmask",
}
PATIENCE = 300.0  # Seconds. The machine may be busy, but anything longer counts as a hang.
SAME = ("model_sha256", "accuracy", "accuracy_before", "accuracy_by_round", "bytes_by_round", "total_bytes", "failures")
Turn = tuple[str, int, int]
"""Phase, round, client."""


@dataclass(frozen=True)
class Undisturbed:
    summary: dict[str, Any]
    ledger: bytes
    seconds: float
    changes: int
    """Number of file changes."""
    sizes: dict[str, int]
    """Bytes of every file of the run folder."""


class Jobs:
    """Results of undisturbed runs, computed on first use."""

    def __init__(self, scratch: Path, names: Sequence[str] = tuple(JOBS)) -> None:
        self.scratch, self.names, self._found = scratch, tuple(names), dict[str, Undisturbed]()
        scratch.mkdir(parents=True, exist_ok=True)

    def words(self, name: str) -> list[str]:
        """The value of `select` contains a space, so it is inserted after splitting."""
        words = f"{JOBS[name]} {COMMON}".split()
        return [word.replace("backbone:weights", "backbone: weights") for word in words]

    def undisturbed(self, name: str) -> Undisturbed:
        if name not in self._found:
            folder = self.scratch / name
            folder.mkdir()
            counted, began = self.scratch / f"{name}.changes", time.monotonic()
            words = ["run", *self.words(name), "folder=runs", "name=job"]
            ended = Process(subbit(words, count_changes(counted)), folder, {}).wait(PATIENCE)
            if ended.status:
                raise RuntimeError(f"the undisturbed run of {name} failed:\n{ended.out}\n{ended.err}")
            run = folder / "runs" / "job"
            self._found[name] = Undisturbed(
                json.loads((run / "summary.json").read_text()),
                (run / "ledger.csv").read_bytes(),
                time.monotonic() - began,
                int(counted.read_text()),
                {str(path.relative_to(run)): path.stat().st_size for path in run.rglob("*") if path.is_file()},
            )
        return self._found[name]

    def warm_up(self) -> None:
        """Import what a run imports, so that children need not. The run itself is in a child, since threads do not
        survive a fork.
        """
        listed = self.scratch / "modules"

        def work() -> None:
            from subbit.config.resolve import resolve
            from subbit.runtime.problem import build_problem
            from subbit.runtime.run import run_job

            for name in self.names[:3]:
                settings = resolve({}, [*self.words(name), "rounds=1"])
                run_job(build_problem(settings.run), settings)
            listed.write_text("\n".join(sys.modules))

        ended = Process(work, self.scratch, {}).wait(PATIENCE)
        if ended.status:
            raise RuntimeError(f"no job runs here:\n{ended.err}")
        for name in ("subbit.cli.entry", "subbit.runtime.check", *listed.read_text().splitlines()):
            if name not in sys.modules and not name.startswith(("__", "chaos")):
                try:
                    importlib.import_module(name)
                except Exception:
                    continue


def with_failures(words: list[str], failures: dict[Turn, str]) -> dict[str, Any]:
    """The summary of a simulated run in which exactly these turns fail, for these causes. Call it in a child."""
    from subbit.config.resolve import resolve
    from subbit.runtime.client import client_turn
    from subbit.runtime.engines import InProcess
    from subbit.runtime.messages import Failure, Order, Reply
    from subbit.runtime.problem import build_problem
    from subbit.runtime.run import run_job
    from subbit.runtime.workplace import Workplace

    class Failing(InProcess):
        def __init__(self, workplace: Workplace) -> None:
            super().__init__(workplace, threads=1)
            self.workplace = workplace

        def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
            for order in orders:
                cause = failures.get((order.phase, order.round_number, order.client))
                if cause is None or order.purpose == "evaluate":
                    yield client_turn(self.workplace, order)
                else:
                    yield Reply(order.client, failure=Failure(cause, "as in the disturbed run"))

    settings = resolve({}, words)
    return run_job(build_problem(settings.run), settings, make_engine=Failing).summary


def failed_turns(run: Path) -> dict[Turn, str]:
    """The turns that failed in a run, from its events."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    return {
        (event["phase"], event["round"], failure["client"]): failure["cause"]
        for event in rounds
        for failure in event["failures"]
    }

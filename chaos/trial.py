"""One trial: its own folder surrounded by canaries, a job in it, and the judgement of how it ended."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from chaos import canary
from chaos.jobs import JOBS, PATIENCE, SAME, Jobs, failed_turns, with_failures
from chaos.processes import Ended, Process, Work, subbit

EQUAL, COUNTED, LINE, BOUNDS, SKIPPED, FAILED = "equal", "counted", "one line", "in bounds", "skipped", "FAILED"
OUTCOMES = (EQUAL, COUNTED, LINE, BOUNDS, SKIPPED, FAILED)
START_AGAIN = ("start the run again", "start again with subbit run", "it has no config.toml")


@dataclass(frozen=True)
class Outcome:
    name: str
    words: str = ""


class FailedError(Exception):
    """The trial failed: something happened that must not happen."""


class Skipped(Exception):
    """The trial is not possible on this machine."""


class Trial:
    def __init__(self, jobs: Jobs, folder: Path, kind: str, seed: int) -> None:
        self.jobs, self.folder, self.seed = jobs, folder, seed
        self.random = Random(f"{kind}/{seed}")
        self.work, self.runs = folder / "work", folder / "work" / "runs"
        self.path = self.runs / "job"
        self.ours: list[Path] = [self.path, self.runs / ".lock", folder / "tmp", folder / "answer.json"]
        self.story: list[str] = []
        self.live: list[Process] = []
        (folder / "tmp").mkdir(parents=True)
        for place in (folder, folder / "home", self.work, self.runs):
            place.mkdir(exist_ok=True)
            canary.plant(place)
        self.before = self.look()

    def look(self) -> canary.Seen:
        return canary.look(self.folder, tuple(self.ours))

    def choose_job(self, *names: str, workers: int | None = None) -> None:
        among = [name for name in names or JOBS if name in self.jobs.names]
        self.name = self.random.choice(among or self.jobs.names)
        self.workers = workers or (2 if self.random.random() < 0.12 else 1)
        self.normal = self.jobs.undisturbed(self.name)
        self.words = self.jobs.words(self.name)
        self.say(f"{self.name}, workers={self.workers}")

    def run_words(self, **changes: Any) -> list[str]:
        keys = {"workers": self.workers, "folder": "runs", "name": "job", **changes}
        return ["run", *self.words, *(f"{key}={value}" for key, value in keys.items())]

    def say(self, words: str) -> None:
        self.story.append(words)

    # Processes.

    def start(self, words: list[str], before: Work | None = None, *, real: bool = False) -> Process:
        return self.start_work(subbit(words, before, real=real))

    def start_work(self, work: Work) -> Process:
        # flwr-datasets imports matplotlib, which caches a list of fonts. Keep that out of the monitored home.
        fonts = str(self.jobs.scratch / "matplotlib")
        home, temporary = str(self.folder / "home"), str(self.folder / "tmp")
        environment = {"HOME": home, "TMPDIR": temporary, "MPLCONFIGDIR": fonts}
        process = Process(work, self.work, environment)
        self.live.append(process)
        return process

    def subbit(self, words: list[str], before: Work | None = None, *, real: bool = False) -> Ended:
        return self.end(self.start(words, before, real=real))

    def end(self, process: Process, *, may_die: bool = False) -> Ended:
        """Wait for the process. It must neither hang nor print a traceback nor leave processes behind."""
        ended = process.wait(PATIENCE)
        self.live.remove(process)
        if ended.hung:
            raise FailedError(f"it hangs:\n{ended.err[-3000:]}")
        # llvmlite may print an exception if it is interrupted while compiling. We cannot prevent that.
        said = re.sub(r"Exception ignored in: [^\n]*\n(?:Traceback[^\n]*\n)?(?:  [^\n]*\n)*?  File [^\n]*llvmlite"
                      r"(?:[^\n]*\n  )*[^\n]*\n[^\n]*\n?", "", ended.err)  # fmt: skip
        if "Traceback" in said or "Traceback" in ended.out or "Exception ignored" in said:
            raise FailedError(f"a traceback:\n{ended.err[-3000:]}{ended.out[-1000:]}")
        if ended.left:
            raise FailedError(f"left behind: {ended.left}")
        if ended.status < 0 and not may_die:
            raise FailedError(f"ended by signal {-ended.status}:\n{ended.err[-1000:]}")
        return ended

    def compute(self, function: Callable[[], Any]) -> Any:
        """Run the function in a child and return its result."""
        answer = self.folder / "answer.json"
        ended = self.end(self.start_work(lambda: _write(answer, function())))
        if ended.status:
            raise FailedError(f"status {ended.status}: {ended.err[-1000:]}")
        return json.loads(answer.read_text())

    # What a user does after a disturbance.

    def carry_on(self) -> Ended:
        """Resume, or start again if the message says so."""
        ended = self.subbit(["resume", "runs/job"])
        if ended.status:
            line = clear_line(ended)
            self.say(f"resume: {line}")
            if any(words in line for words in START_AGAIN):
                if any((self.path / "checkpoint").glob("*.json")):
                    raise FailedError(f"a round was finished, and resume says {line}")
                ended = self.subbit(self.run_words())
                self.say(f"run again: status {ended.status}")
        return ended

    # Judgements.

    def judge(self, ended: Ended, path: Path | None = None, *, check: bool = True) -> Outcome:
        path = path or self.path
        if ended.status:
            return Outcome(LINE, clear_line(ended))
        left = [str(each) for each in path.rglob("*.tmp")] + [str(each) for each in path.glob("running.json")]
        if left:
            raise FailedError(f"a run that ended by itself left {left}")
        if check:
            checked = self.subbit(["check", str(path)])
            if checked.status:
                raise FailedError(f"check after the end: {checked.out}{checked.err}")
        return self.compare(path)

    def finished(self, ended: Ended) -> Outcome:
        """No file was damaged: with or without failures, the run must finish."""
        outcome = self.judge(ended)
        if outcome.name == LINE:
            raise FailedError(f"it does not come to its end: {outcome.words}")
        return outcome

    def compare(self, path: Path) -> Outcome:
        summary = json.loads((path / "summary.json").read_text())
        different = [key for key in SAME if summary[key] != self.normal.summary[key]]
        if not different:
            if (path / "ledger.csv").read_bytes() != self.normal.ledger:
                raise FailedError("the ledger is another one")
            return Outcome(EQUAL)
        if "not_evaluated" in summary and set(different) <= {"accuracy", "accuracy_by_round"}:
            return Outcome(COUNTED, f"not evaluated: {summary['not_evaluated']}")
        if not summary["failures"]:
            pairs = {key: (self.normal.summary[key], summary[key]) for key in different}
            raise FailedError(f"another result, and no failure was counted: {pairs}")
        self.same_as_failed(summary, path)
        return Outcome(COUNTED, str(summary["failures"]))

    def same_as_failed(self, summary: dict[str, Any], path: Path) -> None:
        """Check that an honest run in which the same turns fail ends the same, i.e. that nothing else happened."""
        if self.name == "high-loss":
            return  # Here a failure also changes which clients are chosen.
        failures = failed_turns(path)
        expected = self.compute(lambda: with_failures(self.words, failures))
        keys = ("model_sha256",) if "fedmask" in self.name else ("model_sha256", "accuracy_by_round")
        for key in keys:
            if summary[key] != expected[key]:
                raise FailedError(
                    f"{key} is {summary[key]}, but {expected[key]} in a run in which the same turns fail: {failures}"
                )

    def look_around(self) -> None:
        """Check that nothing else has changed."""
        if changed := canary.differences(self.before, self.look()):
            raise FailedError(f"changed outside of the run's folders: {changed}")

    def close(self) -> None:
        for process in self.live:
            process.signal(9, group=True)
            process.wait(PATIENCE)

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def _write(path: Path, answer: Any) -> None:
    path.write_text(json.dumps(answer))


def clear_line(ended: Ended) -> str:
    """The one line that tells what went wrong."""
    if "Usage:" in ended.err:
        raise FailedError(f"the usage instead of an error:\n{ended.err}")
    lines = [line for line in ended.err.splitlines() if line.startswith(("error: ", "interrupted", "Aborted"))]
    if len(lines) != 1 or len(lines[0]) < 15:
        raise FailedError(f"status {ended.status} without one clear line:\n{ended.err[-2000:]}")
    return lines[0]

"""Does a run get slower or larger with the number of clients and rounds? Real frames and files, checked after a kill.

    python benchmarks/scale.py clients     1,000 clients against 50, half a million parameters, 50 clients a round
    python benchmarks/scale.py rounds      10,000 rounds of 200 clients with tiny payloads: the last against the first

Results go to benchmarks/results/scale.json. Every run is a separate process, so that its peak memory can be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from subbit.config.resolve import resolve
from subbit.core.files import replace_file
from subbit.data import Examples
from subbit.runtime.client_memory import ClientMemories
from subbit.runtime.engines import InProcess
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import Order, Reply, encode_parts
from subbit.runtime.problem import Problem
from subbit.runtime.run import Progress, run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import up

RESULTS = Path(__file__).parent / "results" / "scale.json"
A_ROUND = 50
INPUTS, HIDDEN, CLASSES = 64, 6800, 10
EXAMPLES = 8


class Stopwatch:
    """Seconds that this process spends in a method of a class."""

    def __init__(self, owner: type, name: str) -> None:
        self.seconds, function = 0.0, getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - started

        setattr(owner, name, timed)


def problem(clients: int) -> Problem:
    """Random examples: the measurements do not depend on them."""
    generator = torch.Generator().manual_seed(0)
    count = EXAMPLES * clients
    inputs = torch.randn(count, INPUTS, generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    train = Examples(inputs, labels)
    return Problem(
        module=nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)),
        train=train,
        parts=tuple(np.arange(EXAMPLES * client, EXAMPLES * (client + 1)) for client in range(clients)),
        test=Examples(inputs[:64], labels[:64]),
        classes=CLASSES,
        pretrained=False,
        model_name="perceptron",
        dataset_name="random",
    )


def settings_for(method: str, clients: int, rounds: int, folder: Path) -> Any:
    return resolve(
        {
            "method": method,
            "clients": clients,
            "participation": A_ROUND / clients,
            "rounds": rounds,
            "head": "keep",
            "select": "all: weights",
            "batch_size": EXAMPLES,
            "evaluate_every": rounds,
            "folder": str(folder),
            "name": f"{method}-{clients}",
        }
    )


def one_run(method: str, clients: int, rounds: int, folder: Path, stop_after: int | None) -> dict[str, Any]:
    """Run or resume a job in this process; it kills itself after `stop_after` rounds."""
    torch.manual_seed(0)  # The module above uses torch's global generator.
    given, settings = problem(clients), settings_for(method, clients, rounds, folder)
    saving, remembering = Stopwatch(RunFolder, "write_state"), Stopwatch(ClientMemories, "write")
    path = folder / settings.run.name
    resume = path.exists()
    run_folder = RunFolder.open(path) if resume else RunFolder.create(settings, "")

    def report(progress: Progress) -> None:
        if progress.round_number + 1 == stop_after:
            os.kill(os.getpid(), signal.SIGKILL)

    started = time.perf_counter()
    summary = run_job(given, settings, run_folder, resume=resume, report=report).summary
    seconds = time.perf_counter() - started
    return {
        "method": method,
        "clients": clients,
        "parameters": summary["parameters"],
        "rounds": rounds,
        "seconds": round(seconds, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "saving_share": round(saving.seconds / seconds, 4),
        "client_memory_share": round(remembering.seconds / seconds, 4),
        "model_sha256": summary["model_sha256"],
    }


def in_process(words: Sequence[str], killed: bool = False) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if killed:
        assert done.returncode == -signal.SIGKILL, done.stderr
        return {}
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def by_clients(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method in ("sparse-masks", "topk"):
        rows = {}
        with tempfile.TemporaryDirectory(prefix="subbit-scale-") as scratch:
            for clients in (A_ROUND, 1000):
                rows[clients] = in_process(["one", method, str(clients), str(rounds), scratch])
                print(rows[clients], flush=True)
        with tempfile.TemporaryDirectory(prefix="subbit-scale-") as scratch:
            words = ["one", method, "1000", str(rounds), scratch]
            in_process([*words, "--stop-after", str(rounds // 2)], killed=True)
            resumed = in_process(words)
        found[method] = {
            "runs": list(rows.values()),
            "peak_memory_ratio": round(rows[1000]["peak_mb"] / rows[A_ROUND]["peak_mb"], 3),
            "killed_and_resumed_equal": resumed["model_sha256"] == rows[1000]["model_sha256"],
        }
        print(method, {key: value for key, value in found[method].items() if key != "runs"}, flush=True)
    return found


class Tiny(InProcess):
    """Clients that do not train and send an empty change at once. What remains is the cost of bookkeeping."""

    def __init__(self, workplace: Workplace) -> None:
        super().__init__(workplace, 1)
        self.workplace = workplace

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        method = self.workplace.method("main")
        payloads = {part.name: np.zeros(part.size, dtype=np.float32) for part in method.up_parts()}
        for order in orders:
            where = up(order.round_number, order.client)
            frames = encode_parts(method, "main", where, payloads, None, EXAMPLES)
            yield Reply(order.client, frames, observations={"loss": 1.0})


def by_rounds(rounds: int, clients: int) -> dict[str, Any]:
    """CPU seconds per round at the beginning and at the end; the median of each stretch."""
    marks: list[float] = []
    with tempfile.TemporaryDirectory(prefix="subbit-scale-") as scratch:
        given = problem(clients)
        small = Problem(**{**vars(given), "module": nn.Linear(INPUTS, CLASSES)})
        values = {"method": "fedavg", "clients": clients, "rounds": rounds, "head": "keep", "select": "bias"}
        settings = resolve({**values, "evaluate_every": rounds, "folder": scratch, "name": "long"})
        folder = RunFolder.create(settings, "")
        run_job(small, settings, folder, make_engine=Tiny, report=lambda _: marks.append(time.process_time()))
        written = sum(path.stat().st_size for path in folder.path.iterdir() if path.is_file())
    spent, stretch = np.diff(marks), max(1, rounds // 20)
    first, last = (float(statistics.median(part)) for part in (spent[stretch : 2 * stretch], spent[-stretch:]))
    return {
        "rounds": rounds,
        "clients": clients,
        "cpu_ms_first": round(1000 * first, 3),
        "cpu_ms_last": round(1000 * last, 3),
        "last_over_first": round(last / first, 3),
        "written_mb": round(written / 1e6, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["clients", "rounds", "one"])
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--stop-after", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.what == "one":
        method, clients, rounds, folder = given.words
        print(json.dumps(one_run(method, int(clients), int(rounds), Path(folder), given.stop_after)))
        return
    found = by_clients(given.rounds or 40) if given.what == "clients" else by_rounds(given.rounds or 10_000, 200)
    before = json.loads(given.output.read_text()) if given.output.exists() else {}
    replace_file(given.output, (json.dumps({**before, given.what: found}, indent=2) + "\n").encode())
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

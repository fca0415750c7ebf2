"""How long a server takes for the uploads of a round, and how its memory grows with their number.

    python -m benchmarks.bench.server 35389440 30                      all cases, and the memory of one
    python -m benchmarks.bench.server 35389440 30 "deltamask rice"     one case

Frames take the real path: `Intake` checks, decodes, examines and adds them, then come the step and the thresholds or
levels of the next broadcast. Seconds are CPU seconds of one thread, of the fastest of a few rounds. The clients' scores
have drifted by N(0, 0.1) from probabilities sigmoid(N(0, 2)), which flips 1.2% of the bits. Three clients are encoded,
and their frames are fed in turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

import subbit.runtime.intake as intake_module
from subbit.config.resolve import resolve
from subbit.core.randomness import derive_key, numpy_generator, torch_generator, torch_randomness
from subbit.data.form import Form, TensorForm
from subbit.methods.method import Method, State
from subbit.methods.names import find_method
from subbit.models.flat import FlatModel
from subbit.models.task import Task, Turn
from subbit.runtime.intake import Intake
from subbit.runtime.messages import Frames, encode_parts
from subbit.wire.channel import up

Result = TypeVar("Result")

CASES: dict[str, dict[str, Any]] = {
    "deltamask": {"method": "deltamask"},
    "deltamask rice": {"method": "deltamask", "codec": "rice"},
    "deltamask lane": {"method": "deltamask", "codec": "lane"},
    "deltamask paper": {"method": "deltamask", "preset": "paper"},
    "fedpm": {"method": "fedpm"},
    "fedpm packed": {"method": "fedpm", "codec": "packed"},
    "sparse-masks": {"method": "sparse-masks"},
}
HEADLINE = "deltamask"
DISTINCT, ROUNDS = 3, 3
ROUND, EXAMPLES = 1, 100
LOGIT_DEVIATION, DRIFT = 2.0, 0.1
FEWEST, MOST = 4, 64
"""Numbers of clients between which memory is compared."""


def measure_server(size: int, clients: int) -> dict[str, Any]:
    """Nanoseconds per parameter and client by case, and the growth of the peak memory in one of them."""
    cases = {label: measure_case(label, size, clients) for label in CASES}
    return {
        "size": size,
        "clients": clients,
        "aggregate_ns_per_param_client": cases[HEADLINE]["ns_per_param_client"],
        "cases": cases,
        **measure_memory(HEADLINE, size),
    }


class Stopwatch:
    """CPU seconds of this thread by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        started = time.thread_time()
        result = function(*arguments)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - started
        return result


def measure_case(label: str, size: int, clients: int) -> dict[str, Any]:
    """`decode` and `accumulate` are parts of `add`."""
    method = make_method(label, size, clients)
    state = make_state(method, clients)
    view = make_view(method, state)
    frames = [make_frames(method, view, client) for client in range(DISTINCT)]
    run_round(method, state, view, frames, DISTINCT)  # Compiles the kernels.
    decode, accumulate = intake_module.decode_parts, method.accumulate
    watched: tuple[Any, Any] = (intake_module, method)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        inner = Stopwatch()
        watched[0].decode_parts = partial(inner.time, "decode", decode)
        watched[1].accumulate = partial(inner.time, "accumulate", accumulate)
        spent = run_round(method, state, view, frames, clients)
        if not best or sum(spent.values()) < best["all"]:
            best = {"all": sum(spent.values()), **spent, **inner.seconds}
    watched[0].decode_parts, watched[1].accumulate = decode, accumulate
    nanoseconds = {name: round(1e9 * seconds / (size * clients), 4) for name, seconds in best.items()}
    return {
        "ns_per_param_client": nanoseconds.pop("all"),
        "steps_ns": nanoseconds,
        "frame_bpp": round(8 * sum(len(part) for frame in frames for part in frame) / DISTINCT / size, 4),
    }


def run_round(method: Method[Any], state: State, view: Any, frames: Sequence[Frames], clients: int) -> dict[str, float]:
    """CPU seconds from the frames to what the next broadcast says."""
    watch = Stopwatch()
    intake = watch.time("start", Intake, method, "main", view, ROUND, None)
    for client in range(clients):
        watch.time("add", intake.add, client % len(frames), frames[client % len(frames)])
    after, refused = watch.time("step", intake.step, state)
    if refused:
        raise RuntimeError(f"uploads were refused: {refused}")
    watch.time("open", make_view, method, after)
    return watch.seconds


@torch_randomness(0)
def make_method(label: str, size: int, clients: int) -> Method[Any]:
    """A method on one layer of `size` weights."""
    settings = resolve({**CASES[label], "clients": clients, "head": "keep"})
    task = Task(
        flat=FlatModel(nn.Linear(size, 1, bias=False), "all: weights"),
        classes=2,
        seed=0,
        rounds=10,
        clients=clients,
        participants=clients,
        pretrained=True,
        form=Form((("", TensorForm(torch.float32, (size,))),), TensorForm(torch.int64, ())),
    )
    return find_method(settings.run.method)(settings.parameters, task)


def make_state(method: Method[Any], clients: int) -> State:
    """A state as in the midst of training: counts of as many masks, or scores."""
    logits = numpy_generator(derive_key(0, "bench logits")).standard_normal(method.size, dtype=np.float32)
    logits *= LOGIT_DEVIATION
    if "counts" not in method.start():
        return {"scores": logits.clip(-5, 5)}
    rates, counts = 1 / (1 + np.exp(-logits)), np.zeros(method.size, dtype=np.uint16)
    for client in range(clients):
        counts += numpy_generator(derive_key(0, "bench counts", client)).random(method.size, np.float32) < rates
    return {"counts": counts, "total": clients}


def make_view(method: Method[Any], state: State) -> Any:
    """What a broadcast of the state says. Coding it is the same work whatever the number of clients."""
    if method.changes is None:
        return method.open(method.broadcast(state, ROUND), ROUND)
    held = method.changes.first()
    return method.open(method.changes.follow(held, method.changes.change(state, held, ROUND), ROUND), ROUND)


def make_frames(method: Method[Any], view: Any, client: int) -> Frames:
    trained = method.exchange.trained(view)
    trained += DRIFT * torch.randn(trained.shape, generator=torch_generator(derive_key(0, "bench drift", 0, client)))
    payloads, _ = method.exchange.say(view, trained, Turn(ROUND, client, {}))
    return encode_parts(method, "main", up(ROUND, client), payloads, view, EXAMPLES)


def measure_memory(label: str, size: int) -> dict[str, Any]:
    """Peak of a process that only serves: another one makes the state and the frames, which takes more memory."""
    with tempfile.TemporaryDirectory(prefix="subbit-server-") as folder:
        _in_process(size, DISTINCT, label, "save", folder)
        found = {clients: _in_process(size, clients, label, "serve", folder) for clients in (FEWEST, MOST)}
    return {
        "memory": {str(clients): figures for clients, figures in found.items()},
        "peak_growth": round(found[MOST]["peak_mb"] / found[FEWEST]["peak_mb"] - 1, 4),
    }


def save(label: str, size: int, folder: Path) -> None:
    method = make_method(label, size, DISTINCT)
    state = make_state(method, FEWEST)
    np.savez(folder / "state.npz", **{name: np.asarray(value) for name, value in state.items()})
    for client in range(DISTINCT):
        for number, frame in enumerate(make_frames(method, make_view(method, state), client)):
            (folder / f"{client}-{number}.frame").write_bytes(frame)


def serve(label: str, size: int, clients: int, folder: Path) -> dict[str, float]:
    """Peak memory of this process in a round, all of it and what the round adds to the model and the broadcast. Every
    frame is read when it is its turn."""
    method = make_method(label, size, clients)
    with np.load(folder / "state.npz") as saved:
        state: State = {name: saved[name] if saved[name].ndim else int(saved[name]) for name in saved.files}
    view = make_view(method, state)
    # Not `ru_maxrss`: a process that replaces another, as every new one does, starts from that one's peak.
    Path("/proc/self/clear_refs").write_text("5")
    before = _megabytes("VmHWM")
    run_round(method, state, view, _FramesOnDisk(folder), clients)
    return {"peak_mb": _megabytes("VmHWM"), "round_mb": round(_megabytes("VmHWM") - before, 1)}


def _megabytes(field: str) -> float:
    """A field of /proc/self/status on Linux; VmHWM is the peak since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith(field + ":"))


class _FramesOnDisk(Sequence[Frames]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return DISTINCT

    def __getitem__(self, client: Any) -> Any:
        return tuple(path.read_bytes() for path in sorted(self._folder.glob(f"{client}-*.frame")))


def _in_process(size: int, clients: int, label: str, what: str, folder: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.bench.server", str(size), str(clients), label, what, folder]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main(size: int, clients: int, label: str = "", what: str = "", folder: str = "") -> Any:
    if what:
        return save(label, size, Path(folder)) if what == "save" else serve(label, size, clients, Path(folder))
    return measure_case(label, size, clients) if label else measure_server(size, clients)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]), indent=2))

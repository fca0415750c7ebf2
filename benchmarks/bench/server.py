"""How long a server needs for the uploads of a round, and how its memory grows with their number.

    python -m benchmarks.bench.server 35389440 30

Frames go through the real path: checked, decoded, examined and added by `Intake`, then the step and the thresholds or
scores of the next broadcast. Seconds are CPU seconds of one thread. A few clients are encoded and their frames fed in
turn, so that the process holds what a server holds. The clients' scores have drifted by N(0, 0.1) from probabilities
sigmoid(N(0, 2)), which flips 1.2% of the bits.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

import subbit.runtime.intake as intake_module
from subbit.config.resolve import resolve
from subbit.core.randomness import derive_key, numpy_generator, torch_generator
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
    "subbit": {"method": "subbit"},
}
HEADLINE = "deltamask"
DISTINCT = 3
"""Clients whose frames are made: they are fed again and again, since each takes seconds to encode."""
ROUND = 1
EXAMPLES = 100
LOGIT_DEVIATION, DRIFT = 2.0, 0.1
FEWEST, MOST = 4, 64


def measure_server(size: int, clients: int) -> dict[str, Any]:
    """Nanoseconds per parameter and client of every case, and the memory of the headline's."""
    cases = {label: measure_case(label, size, clients) for label in CASES}
    peaks = [_peak_in_process(HEADLINE, size, number) for number in (FEWEST, MOST)]
    return {
        "size": size,
        "clients": clients,
        "aggregate_ns_per_param_client": cases[HEADLINE]["ns_per_param_client"],
        "cases": cases,
        "peak_mb": dict(zip((str(FEWEST), str(MOST)), peaks, strict=True)),
        "peak_growth": peaks[1] / peaks[0] - 1,
    }


class Stopwatch:
    """CPU seconds of this thread by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        started = time.thread_time()
        try:
            return function(*arguments)
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - started


def measure_case(label: str, size: int, clients: int) -> dict[str, Any]:
    """One round of `clients` uploads. The first uploads, to an intake of their own, compile the kernels."""
    method = make_method(CASES[label], size, clients)
    state = make_state(method, clients)
    view = make_view(method, state)
    frames = [make_frames(method, view, client) for client in range(DISTINCT)]
    _round(method, state, view, frames, DISTINCT, Stopwatch())
    watch, parts = Stopwatch(), Stopwatch()
    decode, accumulate = intake_module.decode_parts, method.accumulate
    try:
        # `Any`: a module and a method whose functions are replaced for the time of the measurement.
        target: Any = intake_module
        target.decode_parts = partial(parts.time, "decode", decode)
        watched: Any = method
        watched.accumulate = partial(parts.time, "accumulate", accumulate)
        _round(method, state, view, frames, clients, watch)
    finally:
        target.decode_parts = decode
        del watched.accumulate
    return {
        "ns_per_param_client": _nanoseconds(sum(watch.seconds.values()), size * clients),
        "frame_bpp": 8 * float(np.mean([sum(map(len, frame)) for frame in frames])) / size,
        "steps_ns": {name: _nanoseconds(spent, size * clients) for name, spent in (watch.seconds | parts.seconds).items()},
    }


def _round(
    method: Method[Any], state: State, view: Any, frames: list[Frames], clients: int, watch: Stopwatch
) -> None:
    intake = watch.time("start", Intake, method, "main", view, ROUND, None)
    for number in range(clients):
        client = number % len(frames)
        watch.time("add", intake.add, client, frames[client])
    after, refused = watch.time("step", intake.step, state)
    if refused:
        raise RuntimeError(f"uploads were refused: {refused}")
    watch.time("open", make_view, method, after)


def make_method(keys: dict[str, Any], size: int, clients: int) -> Method[Any]:
    settings = resolve({**keys, "clients": clients, "head": "keep"})
    torch.manual_seed(0)
    flat = FlatModel(nn.Linear(size, 1, bias=False), "all: weights")
    task = Task(
        flat=flat,
        classes=2,
        seed=0,
        rounds=10,
        clients=clients,
        participants=clients,
        pretrained=True,
        input_shape=(size,),
        input_type=torch.float32,
        examples=(EXAMPLES,) * clients,
    )
    return find_method(settings.run.method)(settings.parameters, task)


def make_state(method: Method[Any], clients: int) -> State:
    """A state in the midst of training."""
    state = method.start()
    logits = numpy_generator(derive_key(0, "bench logits")).standard_normal(method.size, dtype=np.float32)
    logits *= LOGIT_DEVIATION
    if "counts" in state:
        rates = 1 / (1 + np.exp(-logits))
        counts = np.zeros(method.size, dtype=np.uint16)
        for client in range(clients):
            counts += numpy_generator(derive_key(0, "bench counts", client)).random(method.size, np.float32) < rates
        return {"counts": counts, "total": clients}
    if "scores" in state:
        return {"scores": logits.clip(-5, 5)}
    return state


def make_view(method: Method[Any], state: State) -> Any:
    """What the next broadcast says, without coding it."""
    changes = method.changes
    if changes is not None:
        held = changes.first()
        return method.open(changes.follow(held, changes.change(state, held, ROUND), ROUND), ROUND)
    return method.open(method.broadcast(state, ROUND), ROUND)


def make_frames(method: Method[Any], view: Any, client: int) -> Frames:
    trained = method.exchange.trained(view)
    trained += DRIFT * torch.randn(trained.shape, generator=torch_generator(derive_key(0, "bench drift", 0, client)))
    payloads, _ = method.exchange.say(view, trained, Turn(ROUND, client, {}))
    return encode_parts(method, "main", up(ROUND, client), payloads, view, EXAMPLES)


def measure_peak(label: str, size: int, clients: int) -> float:
    """Megabytes of this process after a round of that many clients."""
    method = make_method(CASES[label], size, clients)
    view = make_view(method, make_state(method, FEWEST))
    for _ in _uploads(method, view, clients):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _uploads(method: Method[Any], view: Any, clients: int) -> Iterator[int]:
    yield 0


def _peak_in_process(label: str, size: int, clients: int) -> float:
    command = [sys.executable, "-m", "benchmarks.bench.server", str(size), str(clients), "peak", label]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _nanoseconds(seconds: float, count: int) -> float:
    return 1e9 * seconds / count


if __name__ == "__main__":
    label = sys.argv[3]
    print(json.dumps(measure_case(label, int(sys.argv[1]), int(sys.argv[2])), indent=1))

"""Accuracy of every method with two malicious clients out of ten, with default and with robust aggregation.

    python benchmarks/robustness.py                                    a quarter of an hour on one core
    python benchmarks/robustness.py --methods fedavg fedpm             rerun these, keep the others
    python benchmarks/render_robustness.py                             the table of SECURITY.md

Malicious clients train normally and then send something else in well-formed frames. An attack changes either real
numbers (the learnt change times a factor) or bits (all inverted). A method gets the attacks that apply to its payloads.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from subbit.codecs import Kind
from subbit.codecs.packed import pack_bits, unpack_bits
from subbit.config.resolve import Settings, resolve
from subbit.core.files import replace_file
from subbit.core.pieces import Tables
from subbit.core.randomness import derive_key, torch_randomness
from subbit.exchange.vectors import VectorExchange
from subbit.methods.fedcode import FedCode
from subbit.methods.method import Method, Part, Payloads
from subbit.methods.names import find_method, method_names
from subbit.runtime.client import client_turn
from subbit.runtime.engines import InProcess
from subbit.runtime.messages import Order, Reply
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace

RESULTS = Path(__file__).parent / "results" / "robustness.json"
LIARS = (0, 1)
HONEST = "honest"
TRIM = 0.2
JOB: dict[str, Any] = {
    "dataset": "digits",
    "limit": 800,
    "clients": 10,
    "partition": "iid",
    "head": "keep",
    "rounds": 8,
    "epochs": 4,
    "batch_size": 16,
    "evaluate_every": 8,
}
HIDDEN = 128
MASKS = ("controlled-flips", "deepreduce", "deltamask", "fedpm", "klms", "threshold-mask")
OWN: dict[str, dict[str, Any]] = {
    **{name: {"learning_rate": 0.3} for name in MASKS},
    "edge-popup": {"learning_rate": 2.0},
    "subbit": {"learning_rate": 0.1},
    "subbit-masks": {"learning_rate": 0.1},
    "zampling": {"compression": 1.0},
    "gradmask": {"mask_scope": "global"},
    "fedmask": {"pruned_layers": 0, "lasso": 0.0, "weights": "signed"},
}
"""Overrides of the defaults. Gradient masks: there is no robust mean of masks that differ between clients. FedMask and
Zampling: so small a network does not work if reduced to a fifth or an eighth. Rates: a turn is 20 steps.
"""

Lie = Callable[[Method[Any], Part, Any, Any], Any]
"""(method, part, view, payload) to what is sent instead."""


class Scaled(nn.Module):
    """Scales uint8 images to [0, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 255


def times(factor: float) -> Lie:
    """Multiply the learnt change by a factor. For scores and weights that are sent whole, only their change is
    multiplied.
    """

    def lie(method: Method[Any], part: Part, view: Any, payload: Any) -> Any:
        origin = np.float32(0)
        exchange = getattr(method, "exchange", None)
        if isinstance(exchange, VectorExchange) and exchange.up.whole and part.name == exchange.up_name:
            origin = view[exchange.name]
        elif isinstance(method, FedCode) and part.name == "weights":
            origin = view["weights"]
        return (origin + np.float32(factor) * (payload - origin)).astype(np.float32)

    return lie


def inverted(method: Method[Any], part: Part, view: Any, payload: Any) -> Any:
    if payload.dtype == np.float32:  # Probabilities, from which the coder draws the bits.
        return np.float32(1) - payload
    return pack_bits(~unpack_bits(payload, part.size))


LIES: dict[str, tuple[Kind, Lie]] = {
    "times -1": (Kind.VECTOR, times(-1)),
    "times -10": (Kind.VECTOR, times(-10)),
    "times 1e6": (Kind.VECTOR, times(1e6)),
    "bits inverted": (Kind.BITS, inverted),
}


class WithLiars(InProcess):
    """An engine in which some clients train normally and then send something else."""

    def __init__(self, workplace: Workplace, lie: str, liars: Collection[int] = LIARS) -> None:
        super().__init__(workplace, threads=1)
        self.workplace, self.liars = workplace, liars
        self.kind, self.lie = LIES[lie]

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for order in orders:
            yield self.forged(order) if order.client in self.liars else client_turn(self.workplace, order)

    def forged(self, order: Order) -> Reply:
        method = self.workplace.method("main")
        honest = method.train

        def lying(view: Any, data: Any, turn: Any) -> Any:
            update = honest(view, data, turn)
            return dataclasses.replace(update, payloads=self.lies(method, view, update.payloads))

        method.train = lying  # type: ignore[method-assign]
        try:
            return client_turn(self.workplace, order)
        finally:
            del method.train

    def lies(self, method: Method[Any], view: Any, payloads: Payloads) -> Payloads:
        told = dict(payloads)
        for part in lied_about(method, self.kind):
            if payloads[part.name] is not None:
                told[part.name] = self.lie(method, part, view, payloads[part.name])
        return told


def lied_about(method: Method[Any], kind: Kind) -> list[Part]:
    """The parts to attack. Not the structure, which is sent once: an invalid one is rejected anyway."""
    return [part for part in method.up_parts() if part.codec.kind is kind and part.name != "structure"]


def problem_of(settings: Settings) -> Problem:
    with torch_randomness(derive_key(settings.run.seed, "model")):
        module = nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    return dataclasses.replace(build_problem(settings.run), module=module)


def robust_keys(method: str) -> dict[str, Any]:
    """Options that turn on robust aggregation, if the method has it."""
    tables = Tables(find_method(method).Parameters, find_method(method).words)
    if method == "sparse-masks":
        return {"aggregator": "agreement", "trim": TRIM}
    if tables.knows("trim"):  # Methods that count bits can trim the counts.
        return {"trim": TRIM}
    return {"aggregator": "trimmed", "trim": TRIM} if tables.knows("aggregator") else {}


def outcome(settings: Settings, lie: str) -> dict[str, Any]:
    engine = None if lie == HONEST else lambda workplace: WithLiars(workplace, lie)
    summary = run_job(problem_of(settings), settings, make_engine=engine).summary
    # Only malicious clients are counted here: an honest client never fails in this benchmark.
    return {"accuracy": summary["accuracy"], "refused": summary["failed_clients"]}


def start_accuracy(settings: Settings) -> float:
    """Accuracy of the network before the first round."""
    workplace = Workplace(problem_of(settings), settings)
    method = workplace.method("main")
    workplace.write_network(method.start(), method.primary_network, 1, None)
    return float(np.mean(workplace.tally(np.arange(len(workplace.problem.test)))[:, 0]))


def measure(name: str, seed: int) -> dict[str, Any]:
    base = {**JOB, "method": name, "seed": seed, **OWN.get(name, {})}
    settings = resolve(base)
    method = Workplace(problem_of(settings), settings).method("main")
    lies = [HONEST, *(lie for lie, (kind, _) in LIES.items() if lied_about(method, kind))]
    found: dict[str, Any] = {"start": start_accuracy(settings)}
    variants = {"default": OWN.get(name, {}), "robust": robust_keys(name)}
    for variant, keys in variants.items():
        if keys or variant == "default":
            settings = resolve({**base, **keys})
            found[variant] = {"keys": keys, "lies": {lie: outcome(settings, lie) for lie in lies}}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="See the top of this file.")
    parser.add_argument("--methods", nargs="+", choices=method_names(), default=method_names())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {
        "job": {**JOB, "hidden": HIDDEN, "seed": arguments.seed},
        "liars": len(LIARS),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "skipped": {},
        "methods": {},
    }
    if arguments.output.exists():
        before = json.loads(arguments.output.read_text())
        if all(before[key] == results[key] for key in ("job", "liars", "versions")):
            results |= {"skipped": before["skipped"], "methods": before["methods"]}
    for name in arguments.methods:
        if find_method(name).sends_up == "nothing":
            results["skipped"][name] = "sends nothing that could be a lie"
            continue
        found = measure(name, arguments.seed)
        results["methods"] = dict(sorted({**results["methods"], name: found}.items()))
        shown = {
            variant: {lie: f"{told['accuracy']:.3f}" for lie, told in found[variant]["lies"].items()}
            for variant in ("default", "robust")
            if variant in found
        }
        print(f"{name}: {shown}", flush=True)
        replace_file(arguments.output, (json.dumps(results, indent=2) + "\n").encode())
    print(f"written to {arguments.output} after {time.process_time():.0f} s of one core")

"""The jobs that are measured, for subbit: data, configurations and the CPU and wall seconds of each round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.bench.engine.peers.networks import CLASSES
from benchmarks.bench.engine.peers.plain import LEARNING_RATE
from subbit.config.resolve import resolve
from subbit.config.schema import RunConfig
from subbit.data import Examples
from subbit.models.load_model import BUNDLED
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import Problem
from subbit.runtime.run import Result, run_job

BLOCKS = "last 5 blocks"
VIT = "subbit/vit-micro"
VIT_FOLDER = BUNDLED[VIT]
TEST_EXAMPLES = 1000


@dataclass(frozen=True)
class Job:
    """FedAvg with SGD on random images: `participants` of `clients`, each with as many examples."""

    model: str
    shape: tuple[int, int, int]
    clients: int
    participants: int
    examples: int
    batch_size: int
    select: str = "all"

    @property
    def network(self) -> str:
        """Its name among the peers' networks."""
        return self.model if self.model == "mlp" else str(VIT_FOLDER)

    def peer_words(self, data: Path, rounds: int) -> list[str]:
        numbers = (self.clients, self.participants, self.batch_size, rounds)
        return [str(data), self.network, *map(str, numbers)]

    def values(self, data: Path, rounds: int) -> dict[str, Any]:
        """The configuration for subbit; evaluated at the end only."""
        return {
            "method": "fedavg",
            "dataset": str(data),
            "model": self.model,
            "head": "keep",
            "select": self.select,
            "clients": self.clients,
            "partition": "iid",
            "participation": self.participants / self.clients,
            "batch_size": self.batch_size,
            "optimizer": "sgd",
            "momentum": 0.0,
            "learning_rate": LEARNING_RATE,
            "rounds": rounds,
            "evaluate_every": rounds,
        }

    def write_data(self, path: Path) -> Path:
        """Ten fixed images with noise: learnable, and of the size and type of MNIST or CIFAR-10."""
        generator = np.random.default_rng(0)
        means = generator.integers(0, 256, (CLASSES, *self.shape))
        arrays = {}
        for name, count in (("train", self.clients * self.examples), ("test", TEST_EXAMPLES)):
            labels = generator.integers(0, CLASSES, count)
            noise = generator.integers(0, 256, (count, *self.shape))
            arrays[f"x_{name}"], arrays[f"y_{name}"] = ((means[labels] + noise) // 2).astype(np.uint8), labels
        np.savez(path, **arrays)
        return path


MLP_JOB = Job("mlp", (1, 28, 28), clients=100, participants=10, examples=600, batch_size=20)
"""MNIST's size: 600 examples for each of 100 clients, 30 steps in a turn."""
VIT_JOB = Job(VIT, (3, 32, 32), clients=20, participants=5, examples=64, batch_size=32, select=BLOCKS)


@dataclass
class Clock:
    """Seconds of each round. Between two rounds something else may run, which does not count."""

    between: Callable[[], object] = lambda: None
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    _began: tuple[float, float] | None = None

    def __call__(self, _: object) -> None:
        if self._began is not None:  # The first round also has what comes before it: not counted.
            self.cpu.append(time.process_time() - self._began[0])
            self.wall.append(time.perf_counter() - self._began[1])
        self.between()
        self._began = (time.process_time(), time.perf_counter())

    def warm(self) -> tuple[list[float], list[float]]:
        """Without the first round, which compiles, and the last, which evaluates."""
        return self.cpu[:-1], self.wall[:-1]


def time_rounds(problem: Problem, values: dict[str, Any], clock: Clock) -> Result:
    """Run the job as `subbit run` does, with a run folder."""
    with TemporaryDirectory(prefix="subbit-bench-") as folder:
        settings = resolve({**values, "folder": folder, "name": "timed"})
        return run_job(problem, settings, RunFolder.create(settings, ""), report=clock)


def warm_cpu(problem: Problem, values: dict[str, Any]) -> float:
    """CPU seconds of the fastest warm round."""
    clock = Clock()
    time_rounds(problem, values, clock)
    return min(clock.warm()[0])


def random_images(count: int, shape: tuple[int, ...]) -> Examples:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    return Examples(images, torch.randint(0, CLASSES, (count,), generator=generator))


def problem_of(module: nn.Module, train: Examples, clients: int, test: Examples) -> Problem:
    """The training examples in equal shares."""
    parts = tuple(np.array_split(np.arange(len(train)), clients))
    return Problem(module, train, parts, test, CLASSES, True, type(module).__name__, "random")


def has_cache() -> bool:
    """Whether this version can cache what the frozen layers give."""
    return "cache" in {key.name for key in fields(RunConfig)}


def uncached() -> dict[str, Any]:
    """Keys that keep a cache out of what is measured."""
    return {"cache": "off"} if has_cache() else {}


def by_torch() -> dict[str, Any]:
    """Keys with which linear layers are computed as in the plain loop, so that only what is added to a step shows."""
    return {"products": "torch"} if "products" in {key.name for key in fields(RunConfig)} else {}

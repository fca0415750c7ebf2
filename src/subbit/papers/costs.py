"""What a protocol takes at the paper's own scale, in core-hours, from measured rates.

Rates are CPU seconds per training image of a network, in benchmarks/results/papers/rates.json. Each says how it is
known: measured, or scaled from a measured one by multiply-adds. Evaluating an image counts as a third of training it.
Data sets that are not there are counted by their published sizes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.config.resolve import Settings
from subbit.core.errors import RunFolderError
from subbit.papers.paper_runs import planned
from subbit.papers.protocols import Protocol

SIZES = {
    "digits": (1437, 360),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "emnist": (697_932, 116_323),
    "femnist": (724_737, 80_526),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "eurosat": (21_600, 5_400),
    "food101": (75_750, 25_250),
    "cars196": (8_144, 8_041),
    "tiny-imagenet": (100_000, 10_000),
    "resisc45": (18_900, 6_300),
    "pcam": (262_144, 32_768),
    "har": (7_352, 2_947),
    "shakespeare": (3_380_000, 845_000),
    "ag-news": (120_000, 7_600),
    "ucf101": (9_537, 3_783),
    "hmdb51": (3_570, 1_530),
}
"""Examples to train and to test."""
EVALUATION_SHARE = 1 / 3
ENTRY_SECONDS = 4e-9
"""Zampling: CPU seconds of a step for each entry of Q, from runs of figure 6 of paper 002 with d = 2 and d = 16."""


@dataclass(frozen=True)
class Cost:
    runs: int
    core_hours: float
    unknown: tuple[str, ...]
    """Networks without a rate and data sets without a size, which are left out."""
    scaled: tuple[str, ...]
    """Networks whose rate is not measured."""

    def __str__(self) -> str:
        if not self.runs:
            return "nothing to run"
        hours = f"{self.core_hours:.1f}" if self.core_hours < 100 else f"{self.core_hours:,.0f}"
        text = f"{self.runs} runs, about {hours} core-hours"
        if self.scaled:
            text += f" (rate of {', '.join(self.scaled)} by multiply-adds)"
        return text + (f"; without {', '.join(self.unknown)}" if self.unknown else "")


def read_rates(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["networks"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: no rates of networks ({error!r}): python benchmarks/paper_rates.py") from None


def estimate(protocol: Protocol, scale: str, rates: dict[str, dict[str, Any]]) -> Cost:
    runs = planned(protocol, scale)
    hours, unknown, scaled = 0.0, set(), set()
    for run in runs:
        settings = run.settings
        sizes, rate = SIZES.get(settings.run.dataset.partition("?")[0]), rates.get(settings.run.model)
        if sizes is None or rate is None:
            unknown.add(settings.run.dataset if sizes is None else settings.run.model)
            continue
        if not rate["measured"]:
            scaled.add(settings.run.model)
        seen = images(settings, *sizes)
        hours += seen * (rate["seconds_per_image"] + _matrix_seconds(settings, rate)) / 3600
    return Cost(len(runs), hours, tuple(sorted(unknown)), tuple(sorted(scaled)))


def _matrix_seconds(settings: Settings, rate: dict[str, Any]) -> float:
    """What making the weights from a matrix adds to an image."""
    degree = getattr(getattr(settings.parameters, "map", None), "degree", 0)
    return (
        float(degree * rate.get("weights", 0) * ENTRY_SECONDS / settings.parameters.local.batch_size) if degree else 0.0
    )


def images(settings: Settings, train: int, test: int) -> float:
    """Images to train on, those of evaluations at a third."""
    run = settings.run
    train, test = min(train, run.limit or train), min(test, run.test_limit or test)
    local = settings.parameters.local if hasattr(settings.parameters, "local") else None
    epochs = getattr(local, "epochs", 1)
    turns = 1.0 if run.pooled else max(1, math.floor(run.participation * run.clients)) / run.clients
    evaluations = math.ceil(run.rounds / run.evaluate_every) + 1
    return train * epochs * turns * run.rounds + EVALUATION_SHARE * test * evaluations

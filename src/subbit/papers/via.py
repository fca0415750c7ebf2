"""Ways from settings to a result: a plain run, and what else the papers measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from subbit.config.resolve import Settings
from subbit.papers.zampling_tables import finished_run, sensitivity
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

PERTURBATIONS = SAMPLES = 10


def plain(settings: Settings) -> Mapping[str, Any]:
    return run_job(build_problem(settings.run), settings).summary


def perturbed(settings: Settings, tau: float | str) -> Mapping[str, Any]:
    """Zampling's table 4: the accuracy of a trained network whose p are perturbed where tau <= p <= 1 - tau."""
    with TemporaryDirectory(prefix="subbit-paper-") as folder:
        path = finished_run(replace(settings, run=replace(settings.run, folder=folder)))
        chosen = "all" if tau == "all" else float(tau)
        found = sensitivity(Path(path), [chosen], PERTURBATIONS, SAMPLES, lambda line: None)["rows"][0]  # type: ignore[list-item]
        summary = _summary(Path(path))
    return {**summary, "score": found["accuracy"] / 100, **{key: found[key] for key in ("sensitivity", "deviation")}}


def _summary(path: Path) -> dict[str, Any]:
    from subbit.runtime.folder import RunFolder

    return RunFolder.open(path).read_summary()


WAYS: dict[str, Callable[..., Mapping[str, Any]]] = {"": plain, "perturbed": perturbed}

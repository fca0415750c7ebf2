"""Python API: fine-tune your own module on your own clients' data, without a configuration file."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from subbit.config.resolve import Settings, resolve, same_job
from subbit.config.schema import GIVEN
from subbit.core.blame import one_line
from subbit.core.errors import ConfigError, DataError, ModelError, RunFolderError, RunWarning
from subbit.core.pieces import flattened
from subbit.core.values import parse_value
from subbit.objectives import Objective, find_objective
from subbit.objectives.own import OwnObjective
from subbit.pages.write_report import try_to_write, write_report
from subbit.runtime.folder import RunFolder, is_started
from subbit.runtime.given import Given, as_lines, differing, fingerprints
from subbit.runtime.problem import Problem
from subbit.runtime.rearranged import rearranged
from subbit.runtime.run import Progress, Result, run_job
from subbit.runtime.side_files import Split
from subbit.runtime.trial import try_job
from subbit.tuned import TunedResult

_INSTEAD = "takes the module and the clients' data as arguments instead"
NOT_HERE = {
    **dict.fromkeys(("dataset", "partition", "clients", "model", "limit", "test_limit", "alpha"), _INSTEAD),
    **dict.fromkeys(("classes_per_client", "class_balance", "revision", "pooling"), _INSTEAD),
    **dict.fromkeys(("test_dataset", "test_share", "class_names", "input", "start_with", "most_examples"), _INSTEAD),
    "name": "takes the whole path as `folder`",
    "engine": "runs on this machine; see docs/flower.md for others",
    "deadline": "runs on this machine, where clients are never late",
    "plugins": "uses what the script registers",
}
"""Keys of a run that have no effect here, and why."""


def fine_tune(
    module: nn.Module,
    clients: Sequence[Any],
    test: Any = None,
    *,
    client_tests: Sequence[Any] | None = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    score: Callable[[Any, Any], Tensor] | None = None,
    higher_is_better: bool | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    in_memory: bool | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    report: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> TunedResult:
    """Fine-tune a module across clients that never share their data. Every message is encoded as a real frame.

    `clients` holds one data set per client and `test` one for evaluation. A data set is `subbit.data.Examples`, a pair
    of tensors (inputs, labels), a dict of tensors with `labels`, or anything with `__len__` and `__getitem__`: a torch
    or a Hugging Face data set, which is read batch by batch, by `collate` if you give one. `in_memory=True` reads it
    once. With `client_tests` instead of `test`, every client has a test set of its own, and personal methods are
    evaluated on these. The module itself is not changed: `result.module` is the trained copy.

    What the loss is: `objective="classification"`, `"multi-label"`, `"regression"`, `"segmentation"`, `"language"`,
    `"module"` (the module returns its loss), or functions: `loss(outputs, labels)` returns the mean loss of a batch and
    `score(outputs, labels)` one number per example, e.g. whether it is right. Higher scores are better, unless you say
    `higher_is_better=False`.

    `settings` are the keys of `subbit run` and of the method, e.g. `method="fedavg", rounds=5, learning_rate=0.1`.
    Write a key in a table as `**{"up.codec": "eden"}` or `up={"codec": "eden"}`. By default the module keeps its head
    (`head="keep"`). Set `classes` if the labels do not contain every class.

    With `folder` the run can be resumed after an interruption: the same call with `resume=True` continues after the
    last finished round, or starts the run if it has not started yet. At the end the folder has `report.html`, the run
    to look at; `subbit.write_report(folder)` makes it at any other time.

    What looks wrong about the run, e.g. a score that fell, is a `RunWarning`, and in `result.warnings`.

    With `workers` above 1 the module and the data must be picklable, and a script needs `if __name__ == "__main__":`.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"module: found {type(module).__name__}; need a torch.nn.Module")
    settings = _plain(settings)
    for key in flattened(settings):
        if key.removeprefix("run.") in NOT_HERE:
            raise ConfigError(f"{key}: fine_tune {NOT_HERE[key.removeprefix('run.')]}")
    path = Path(folder) if folder is not None else None
    if resume and path is None:
        raise ConfigError("resume=True: give the folder of the run")
    classes = parse_value("classes", settings.pop("classes", None), int | None)
    if not isinstance(clients, Sequence) or isinstance(clients, str) or not len(clients):
        raise DataError(f"clients: found {clients!r:.40}; need a list with one data set per client")
    values = {"head": "keep", **settings, "clients": len(clients), "model": GIVEN, "dataset": GIVEN}
    own = _own_objective(loss, score, higher_is_better)
    if own is not None:
        if {"objective", "run.objective"} & {*flattened(settings)}:
            raise ConfigError("give either an objective, which has a loss and a score of its own, or loss= and score=")
        values["objective"] = GIVEN
    if path is not None:
        values |= {"folder": str(path.parent), "name": path.name}
    if collate is not None and not callable(collate):
        raise ConfigError(f"collate: found {type(collate).__name__}; needs a function of a list of items")
    resolved = resolve(values)
    if resolved.run.workers > 1:
        _refuse_unpicklable(loss=loss, score=score, collate=collate)
    objective = own or find_objective(resolved.run.objective)
    given = Given(objective, collate, in_memory)
    problem = given.problem(module, clients, test, client_tests, classes, resolved.run.pretrained)
    problem = rearranged(problem, resolved.run)
    found = _run(problem, resolved, path, resume, report)
    if path is not None:
        try_to_write(lambda: write_report(path), lambda told: warnings.warn(told, RunWarning, stacklevel=4))
    return TunedResult(found.summary, found.module, found.numbers, found.trained)


def _own_objective(loss: Any, score: Any, higher_is_better: bool | None) -> Objective | None:
    if loss is not None or score is not None:
        return OwnObjective(loss, score, higher_is_better)
    if higher_is_better is not None:
        raise ConfigError("higher_is_better: only with loss= and score=; an objective says it itself")
    return None


def _refuse_unpicklable(**functions: Any) -> None:
    for name, function in functions.items():
        try:
            pickle.dumps(function)
        except Exception as error:
            raise ConfigError(
                f"{name}: other processes cannot import it ({one_line(error)}): define it at the top level of a file, "
                "not as a lambda or inside a function, or use workers=1"
            ) from None


def _run(
    problem: Problem,
    resolved: Settings,
    path: Path | None,
    resume: bool,
    report: Callable[[Progress], None] | None,
) -> Result:
    started = path is not None and resume and is_started(path)
    if not started:
        try_job(problem, resolved)
    if path is None:
        return _told(run_job(problem, resolved, report=report))
    summary, sums = problem.split_summary(), fingerprints(problem)
    split = summary.as_text()
    if not started:
        folder = RunFolder.create(resolved, f"{split}\n{as_lines(sums)}", Split.of(summary))
        return _told(run_job(problem, resolved, folder, report=report))
    opened = RunFolder.open(path)
    differs = ["the settings"] * (not same_job(opened.settings, resolved)) + differing(opened.split(), split, sums)
    if differs:
        raise RunFolderError(
            f"{path} is a run with other settings or other data ({' and '.join(differs)}): give those of that run, or "
            "a new folder"
        )
    return _told(run_job(problem, resolved, opened, resume=True, report=report))


def _told(result: Result) -> Result:
    for advice in result.numbers.warnings:
        warnings.warn(advice.what, RunWarning, stacklevel=4)  # At the call of fine_tune.
    return result


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Numbers of numpy as Python's own, in tables too."""
    return {
        key: _plain(value) if isinstance(value, dict) else value.item() if isinstance(value, np.generic) else value
        for key, value in settings.items()
    }

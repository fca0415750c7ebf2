"""Python API: fine-tune your own module on your own clients' data, without a configuration file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from subbit.config.resolve import resolve
from subbit.config.schema import GIVEN
from subbit.core.errors import ConfigError, DataError, ModelError, RunFolderError
from subbit.core.pieces import flattened
from subbit.core.values import parse_value
from subbit.data import Examples, as_examples
from subbit.runtime.folder import RunFolder, is_started
from subbit.runtime.given import as_lines, differing, fingerprints
from subbit.runtime.problem import Problem
from subbit.runtime.run import Progress, Result, run_job
from subbit.runtime.trial import try_job

_INSTEAD = "takes the module and the clients' data as arguments instead"
NOT_HERE = {
    **dict.fromkeys(("dataset", "partition", "clients", "model", "limit", "test_limit", "alpha"), _INSTEAD),
    **dict.fromkeys(("classes_per_client", "class_balance", "revision", "pooling"), _INSTEAD),
    "name": "takes the whole path as `folder`",
    "engine": "runs on this machine; see docs/flower.md for others",
    "deadline": "runs on this machine, where clients are never late",
    "plugins": "uses what the script registers",
}
"""Keys of a run that have no effect here, and why."""


def fine_tune(
    module: nn.Module,
    clients: Sequence[Any],
    test: Any,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    report: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Result:
    """Fine-tune a module across clients that never share their data. Every message is encoded as a real frame.

    `clients` holds one data set per client and `test` one for evaluation: a torch `Dataset` of (input, label) pairs, a
    pair of tensors (inputs, labels) or `subbit.data.Examples`. The module itself is not changed: `result.module` is the
    trained copy.

    `settings` are the keys of `subbit run` and of the method, e.g. `method="fedavg", rounds=5, learning_rate=0.1`.
    Write a key in a table as `**{"up.codec": "eden"}` or `up={"codec": "eden"}`. By default the module keeps its head
    (`head="keep"`). Set `classes` if the labels do not contain every class.

    With `folder` the run can be resumed after an interruption: the same call with `resume=True` continues after the
    last finished round, or starts the run if it has not started yet.

    With `workers` above 1 the module and the data must be picklable, and a script needs `if __name__ == "__main__":`.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"module: found {type(module).__name__}; need a torch.nn.Module")
    if not hasattr(clients, "__len__") or not len(clients):
        raise DataError(f"clients: found {clients!r:.40}; need a list with one data set per client")
    settings = _plain(settings)
    data = [as_examples(dataset) for dataset in clients]
    held_out = as_examples(test)
    everything = [examples for examples in [*data, held_out] if len(examples)]
    if not any(map(len, data)) or not len(held_out):
        raise DataError("no client has any data, or the test set is empty")
    classes = parse_value("classes", settings.pop("classes", None), int | None)
    found = 1 + max(int(examples.labels.max()) for examples in everything)
    if classes is not None and found > classes:
        raise DataError(f"classes={classes}, but there is a label {found - 1}: labels go from 0 to classes - 1")
    for key in flattened(settings):
        if key.removeprefix("run.") in NOT_HERE:
            raise ConfigError(f"{key}: fine_tune {NOT_HERE[key.removeprefix('run.')]}")
    path = Path(folder) if folder is not None else None
    values = {"head": "keep", **settings, "clients": len(data), "model": GIVEN, "dataset": GIVEN}
    if path is not None:
        values |= {"folder": str(path.parent), "name": path.name}
    resolved = resolve(values)
    train = _together(data)
    if _kind(held_out) != _kind(train):
        raise DataError(f"test: found inputs {_kind(held_out)}, but the clients hold {_kind(train)}; one is needed")
    problem = Problem(
        module=module,
        train=train,
        parts=_consecutive([len(examples) for examples in data]),
        test=held_out,
        classes=classes or found,
        pretrained=resolved.run.pretrained,
        model_name=type(module).__name__,
        dataset_name=GIVEN,
    )
    if resume and path is None:
        raise ConfigError("resume=True: give the folder of the run")
    started = path is not None and resume and is_started(path)
    if not started:
        try_job(problem, resolved)
    if path is None:
        return run_job(problem, resolved, report=report)
    split, sums = problem.split_summary().as_text(), fingerprints(problem)
    if not started:
        return run_job(problem, resolved, RunFolder.create(resolved, f"{split}\n{as_lines(sums)}"), report=report)
    opened = RunFolder.open(path)
    differs = ["the settings"] * (opened.settings != resolved) + differing(opened.split(), split, sums)
    if differs:
        raise RunFolderError(
            f"{path} is a run with other settings or other data ({' and '.join(differs)}): give those of that run, or "
            "a new folder"
        )
    return run_job(problem, resolved, opened, resume=True, report=report)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Numbers of numpy as Python's own, in tables too."""
    return {
        key: _plain(value) if isinstance(value, dict) else value.item() if isinstance(value, np.generic) else value
        for key, value in settings.items()
    }


def _together(data: list[Examples]) -> Examples:
    filled = [examples for examples in data if len(examples)]
    kinds = sorted({_kind(examples) for examples in filled})
    if len(kinds) > 1:
        raise DataError(f"clients hold inputs of different shapes or types: {', '.join(kinds)}; one is needed")
    owners = [examples.owners for examples in filled]
    known = tuple(owner for each in owners if each is not None for owner in each)
    if known and None in owners:
        raise DataError("some clients' examples have owners and others' have none: give all of them owners, or none")
    inputs, labels = ([getattr(examples, name) for examples in filled] for name in ("inputs", "labels"))
    return Examples(torch.cat(inputs), torch.cat(labels), known or None)


def _kind(examples: Examples) -> str:
    return f"{str(examples.inputs.dtype).removeprefix('torch.')} {list(examples.inputs.shape[1:])}"


def _consecutive(sizes: list[int]) -> tuple[Any, ...]:
    ends = np.cumsum(sizes)
    return tuple(np.arange(end - size, end, dtype=np.int64) for size, end in zip(sizes, ends, strict=True))

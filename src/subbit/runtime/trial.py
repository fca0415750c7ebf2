"""Tries a job before it starts, so that a job that cannot work leaves no folder behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from subbit.config.resolve import Settings
from subbit.core.blame import one_line, place_of
from subbit.core.busy import busy_with
from subbit.core.errors import ConfigError, ModelError, PluginError, SubbitError
from subbit.core.machine import torch_threads
from subbit.core.randomness import derive_key, torch_randomness
from subbit.data.examples import Inputs
from subbit.models.frozen_weights import is_narrowed
from subbit.models.sound_weights import check_weights
from subbit.runtime.evaluation import is_personal
from subbit.runtime.head_trial import try_head
from subbit.runtime.problem import Problem
from subbit.runtime.tracked import find_trackers
from subbit.runtime.workplace import Workplace

TRIED = 2  # Examples; one alone is a special case for some layers.


def try_job(problem: Problem, settings: Settings) -> None:
    """Build the method and run the module on a few examples; raises `SubbitError` if that does not work."""
    busy_with("trying the job on a few examples")
    # As many threads as the run has: more would only wait for each other at so few examples.
    with torch_threads(settings.run.threads):
        find_trackers(settings.run.track)
        check_weights(problem.module)
        workplace = Workplace(problem, settings, share=True)
        _try_accumulator(workplace)
        workplace.attach("main")
        workplace.method("main").task.flat.evaluation_mode()
        if is_personal(workplace):
            problem.own_test(problem.clients_with_data()[0])
        with torch_randomness(derive_key(settings.run.seed, "trial")):
            workplace.method("main").task.training_batch(problem.train, np.arange(min(TRIED, len(problem.train))), 0)
            try_module(workplace.module, problem)
            try_head(workplace.module, problem, settings.run.head, TRIED)
            _try_precision(workplace)


def _try_precision(workplace: Workplace) -> None:
    """After the module has run in float32. Some layers, such as an LSTM on many CPUs, have no lower precision."""
    precision, task = workplace.settings.run.precision, workplace.method("main").task
    if precision == "float32":
        return
    try:
        with torch.no_grad():
            task.outputs(replace(workplace.problem.some(TRIED), rows=None).to(workplace.device))
    except Exception as error:
        raise ConfigError(
            f"precision={precision}: the module does not run in it on {workplace.device.type}: {one_line(error)}; use "
            "precision=float32"
        ) from error


def _try_accumulator(workplace: Workplace) -> None:
    try:
        missing = "order_free" if not hasattr(workplace.method("main").accumulator(), "order_free") else None
    except SubbitError:
        raise
    except Exception as error:
        missing = f"one that works: {one_line(error)}{place_of(error)}"
    if missing:
        raise PluginError(f"what gathers the answers (accumulator of method or aggregator) lacks {missing}")


def try_module(module: nn.Module, problem: Problem) -> None:
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    batch, objective = problem.some(TRIED).to(device), problem.objective
    inputs = batch.inputs
    found = f"inputs are {_described(inputs)}"
    try:
        with torch.no_grad():
            outputs = objective.outputs(module, batch)
    except SubbitError:
        raise
    except Exception as error:
        raise ModelError(
            f"the module does not take these inputs: {one_line(error)}. The {found}{_advice(module, inputs)}"
        ) from error
    with torch.no_grad():
        try:
            objective.check_outputs(outputs, batch, problem.classes)
            tally = objective.tally(outputs, batch)
        except SubbitError as error:
            raise ModelError(f"{error}. The {found}") from None
    if tally.shape[0] != len(batch) or tally.dim() != 2:
        raise ModelError(f"objective {objective.name}: tally is {list(tally.shape)}; needs a row for each example")


def _advice(module: nn.Module, inputs: Inputs) -> str:
    """What is most likely wrong, if that can be told."""
    types = sorted({str(value.dtype).removeprefix("torch.") for value in module.parameters()})
    if is_narrowed(module):
        return "; its layers cannot be mixed with others of lower precision: use frozen_weights=float32"
    if len(types) > 1:
        return (
            f"; its parameters are {' and '.join(types)}, since what is trained is float32: if its layers cannot be "
            "mixed, convert the whole module by .float()"
        )
    if isinstance(inputs, Tensor) and inputs.dtype == torch.uint8:
        return "; its forward gets uint8 images as they are: begin with inputs.float() / 255"
    return ""


def _described(inputs: Inputs) -> str:
    named = {"": inputs} if isinstance(inputs, Tensor) else inputs
    return ", ".join(
        f"{name} {str(tensor.dtype).removeprefix('torch.')} {['n', *tensor.shape[1:]]}".replace("'", "").strip()
        for name, tensor in named.items()
    )

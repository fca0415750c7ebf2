"""Tries a job before it starts, so that a job that cannot work leaves no folder behind."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subbit.config.resolve import Settings
from subbit.core.blame import one_line, place_of
from subbit.core.errors import ModelError, PluginError, SubbitError
from subbit.core.randomness import derive_key, torch_randomness
from subbit.runtime.problem import Problem
from subbit.runtime.workplace import Workplace

TRIED = 2  # Examples; one alone is a special case for some layers.


def try_job(problem: Problem, settings: Settings) -> None:
    """Build the method and run the module on a few examples; raises `SubbitError` if that does not work."""
    workplace = Workplace(problem, settings)  # Has a copy of the module.
    _try_accumulator(workplace)
    workplace.attach("main")
    workplace.method("main").task.flat.evaluation_mode()
    with torch_randomness(derive_key(settings.run.seed, "trial")):
        try_module(workplace.module, problem)


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
    inputs = problem.train.inputs[:TRIED]
    found = f"inputs are {str(inputs.dtype).removeprefix('torch.')} {['n', *inputs.shape[1:]]}".replace("'", "")
    try:
        with torch.no_grad():
            outputs = module(inputs)
    except SubbitError:
        raise
    except Exception as error:
        advice = "; its forward gets uint8 images as they are: begin with inputs.float() / 255"
        raise ModelError(
            f"the module does not take these inputs: {one_line(error)}. The {found}"
            f"{advice if inputs.dtype == torch.uint8 else ''}"
        ) from error
    if not isinstance(outputs, Tensor):
        raise ModelError(f"the module returns {type(outputs).__name__}; needs a tensor [n, classes] of logits")
    shape = tuple(outputs.shape)
    if len(shape) != 2 or shape[0] != len(inputs) or shape[1] < problem.classes:
        raise ModelError(
            f"the module returns {['n', *shape[1:]]}".replace("'", "")
            + f" for {problem.classes} classes, and the {found}; needs one row [classes] of logits for each example"
        )

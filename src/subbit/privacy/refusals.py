"""Rejects, before the first round, networks for which a privacy guarantee would be wrong."""

from __future__ import annotations

from typing import Any

from torch import nn

from subbit.core.errors import ModelError
from subbit.core.randomness import derive_key, torch_randomness
from subbit.models.flat import FlatModel
from subbit.models.task import Task
from subbit.privacy.per_sample import PerSampleGradients


def refuse_module(task: Task, gradients: PerSampleGradients) -> None:
    _refuse_statistics(task.flat)
    _refuse_what_cannot_be_vectorised(task, gradients)


def _refuse_statistics(flat: FlatModel) -> None:
    name = flat.mixing_layer()
    if name is not None:
        kind = type(flat.module.get_submodule(name)).__name__
        raise ModelError(
            f"privacy: {name!r} is {kind} with batchnorm={flat.batchnorm}: its statistics mix the "
            "examples of a batch, so that no gradient is that of one example; use batchnorm=frozen or a layer "
            "such as GroupNorm"
        )


def _refuse_what_cannot_be_vectorised(task: Task, gradients: PerSampleGradients) -> None:
    """Try two examples of zeros. The error message names the last layer entered."""
    module, entered = task.flat.module, [("", task.flat.module)]

    def watch(name: str, layer: nn.Module) -> Any:
        return layer.register_forward_pre_hook(lambda *_: entered.append((name, layer)))

    handles = [watch(name, layer) for name, layer in module.named_modules()]
    task.flat.training_mode()
    try:
        with torch_randomness(derive_key(task.seed, "privacy-trial"), task.flat.device):
            gradients.of_each(task.form.zeros(2).to(task.flat.device))
    except Exception as error:
        name, layer = entered[-1]
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"privacy: no gradients of single examples through {name!r} ({type(layer).__name__}): {reason}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()

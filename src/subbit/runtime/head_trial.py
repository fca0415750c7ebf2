"""Tries whether a head that is to be fitted is what gives the outputs.

The head is found by its name, or it is the last linear layer that the module has registered. Nothing says that the
module calls it last. If another layer is fitted, the network is ruined before the first round, and no score shows it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.models.select import find_head
from subbit.runtime.problem import Problem

FITTED = ("lda", "probe")
ADVICE = "use head=keep to leave it as it is, or call the layer that gives the outputs 'head'"


def try_head(module: nn.Module, problem: Problem, kind: str, examples: int) -> None:
    """Raises `ModelError` if head=`kind` would fit a layer that others share, or that does not give the outputs."""
    if kind not in FITTED or not problem.objective.labels_are_classes:
        return
    name = find_head(module)
    head = module.get_submodule(name)
    own = {id(parameter) for parameter in head.parameters()}
    for other, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) in own and not other.startswith(f"{name}."):
            raise ModelError(f"head={kind}: a weight of the head {name!r} is that of {other!r} too; use head=keep")
    calls: list[Any] = []
    hook = head.register_forward_hook(lambda layer, inputs, output: calls.append(output))
    try:
        with torch.no_grad():
            device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
            outputs = problem.objective.outputs(module, problem.some(examples).to(device))
    finally:
        hook.remove()
    if len(calls) != 1:
        raise ModelError(f"head={kind}: the module calls its head {name!r} {len(calls)} times, needs once; {ADVICE}")
    if not _same_order(calls[0], outputs):
        raise ModelError(f"head={kind}: what the head {name!r} gives is not what the module gives; {ADVICE}")


def _same_order(given: Any, outputs: Any) -> bool:
    """Whether the classes are in the same order: a softmax or a scale behind the head does no harm."""
    if not (isinstance(given, Tensor) and isinstance(outputs, Tensor)):
        return True
    if given.shape != outputs.shape:
        return False
    return torch.equal(given.argsort(stable=True, dim=-1), outputs.argsort(stable=True, dim=-1))

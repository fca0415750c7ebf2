"""Watch which submodules a module calls before it comes to the first that depends on what is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from subbit.models.flat import FlatModel


@dataclass
class Call:
    module: nn.Module
    output: Any = None
    before: list[Call] = field(default_factory=list)
    """Calls that this one has made and that have returned."""


@dataclass(frozen=True)
class Trace:
    """One forward pass, up to the first call that depends on what is trained."""

    stack: list[Call]
    """The calls in progress at that moment, the outermost first. The last one is the first touched call."""


def touched_modules(flat: FlatModel, names: set[str]) -> set[nn.Module]:
    """The modules that own these parameters, and the norms whose statistics training changes."""
    parameters = dict(flat.module.named_parameters(remove_duplicate=False))
    changed = {id(parameters[name]) for name in names if name in parameters}
    found = set()
    for module in flat.module.modules():
        own = [parameter for parameter in module._parameters.values() if parameter is not None]
        if any(id(parameter) in changed for parameter in own):
            found.add(module)
        if flat.batchnorm != "frozen" and isinstance(module, nn.modules.batchnorm._NormBase):
            found.add(module)
    return found


@torch.no_grad()
def trace_calls(module: nn.Module, touched: set[nn.Module], inputs: Tensor) -> Trace | None:
    stack: list[Call] = []
    found: list[Trace] = []
    called: set[nn.Module] = set()

    def enter(entered: nn.Module, *_: Any) -> None:
        stack.append(Call(entered))
        called.add(entered)
        if entered in touched and not found:
            # Copies: the calls go on and add to the lists.
            found.append(Trace([Call(call.module, None, list(call.before)) for call in stack]))

    def leave(_: nn.Module, arguments: Any, output: Any) -> None:
        call = stack.pop()
        call.output = output
        if stack:
            stack[-1].before.append(call)

    handles = [each.register_forward_pre_hook(enter) for each in module.modules()]
    handles += [each.register_forward_hook(leave) for each in module.modules()]
    try:
        module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    # Parameters of a module that is never called belong to whoever uses them, e.g. nn.MultiheadAttention's projection.
    uncalled = touched - called
    if uncalled:
        owners = {
            parent for parent in called if parent is not module and any(child in uncalled for child in parent.modules())
        }
        if not owners or owners <= touched:
            return None if not owners else found[0]
        return trace_calls(module, touched - uncalled | owners, inputs)
    return found[0] if found else None

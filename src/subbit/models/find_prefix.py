"""Find the frozen prefix of a module: see `subbit.models.prefix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from subbit.models.call_trace import Call, touched_modules, trace_calls
from subbit.models.checkpointing import is_checkpointed
from subbit.models.flat import FlatModel
from subbit.models.precision import HALVES
from subbit.models.prefix import Leaf, NanTensor, Prefix, Skipped

PROBES = (2, 3)
"""Numbers of examples with which a module is watched. Two, to see which dimensions grow with the batch."""
LEAST_SHARE = 0.02
"""A prefix with less than this share of the module's weights is not worth keeping. Tables of embeddings do not count:
looking up is cheap."""


def find_prefix(flat: FlatModel, also_changed: Sequence[str], inputs: Tensor) -> Prefix | None:
    """The longest prefix that does not depend on trained weights, nor on the parameters in `also_changed`.

    None if there is none, or it is not worth it: its values depend on the other examples of a batch, or on chance.
    """
    module = flat.module
    if len(inputs) < max(PROBES):
        return None
    inputs = inputs.to(flat.device)
    flat.attach()
    flat.evaluation_mode()
    touched = touched_modules(flat, {*flat.template.names, *also_changed})
    try:
        traces = [trace_calls(module, touched, inputs[:examples]) for examples in PROBES]
    except Exception:  # A module that cannot run on these inputs says so where it is used.
        return None
    if any(trace is None for trace in traces):
        return None
    first, second = (trace.stack for trace in traces if trace is not None)
    if [call.module for call in first] != [call.module for call in second]:
        return None
    for depth in range(len(first) - 1, 0, -1):
        # What is computed again in the backward pass is computed without what was kept.
        if any(is_checkpointed(call.module) for call in first[:depth]):
            continue
        # Modules without weights may compute something that all layers use, such as rotary embeddings: then run them.
        for skip_all in (True, False):
            prefix = _at(flat, (first[: depth + 1], second[: depth + 1]), skip_all, inputs)
            if prefix is not None:
                return prefix if _worth_it(prefix) else None
    return None


def _at(flat: FlatModel, stacks: tuple[list[Call], list[Call]], skip_all: bool, inputs: Tensor) -> Prefix | None:
    """The prefix that ends at the last call of the stack, if it can be skipped without changing anything."""
    module, cut = flat.module, stacks[0][-1].module
    pairs = [
        (one, two)
        for outer, other in zip(*(stack[:-1] for stack in stacks), strict=True)
        for one, two in zip(outer.before, other.before, strict=False)
        if skip_all or any(True for _ in one.module.parameters())
    ]
    skipped = [_skipped(*pair) for pair in pairs]
    complete = [call for call in skipped if call is not None]
    if not complete or len(complete) < len(skipped):
        return None
    try:
        leaves = _leaves(module, cut, complete, inputs)
        if not leaves:
            return None
        prefix = Prefix(module, cut, tuple(complete), leaves)
        return prefix if _skips_nothing_else(flat, prefix, inputs) else None
    except Exception:  # Code between the calls that cannot work with NaN.
        return None
    finally:
        flat.evaluation_mode()


def _skipped(one: Call, two: Call) -> Skipped | None:
    """The results for two batch sizes give the form for any."""
    first, structure = tree_flatten(one.output)
    second, other = tree_flatten(two.output)
    if one.module is not two.module or structure != other:
        return None
    values: list[Any] = []
    for value, larger in zip(first, second, strict=True):
        if not isinstance(value, Tensor):
            values.append(value)
            continue
        dimensions = [_growth(small, big) for small, big in zip(value.shape, larger.shape, strict=True)]
        if not value.is_floating_point() or None in dimensions:
            return None
        values.append(NanTensor(value.dtype, value.device, tuple(each for each in dimensions if each is not None)))
    return Skipped(one.module, structure, tuple(values))


def _growth(small: int, big: int) -> tuple[int, int] | None:
    """A length per example and a fixed one: one of them is 0."""
    if small == big:
        return 0, small
    per_example = big - small
    return (per_example, 0) if small == PROBES[0] * per_example else None


def _leaves(module: nn.Module, cut: nn.Module, skipped: list[Skipped], inputs: Tensor) -> tuple[Leaf, ...]:
    """The arguments of the cut that come from the skipped calls: those that are NaN without them."""
    seen: list[list[Any]] = []

    def look(_: nn.Module, args: Any, kwargs: Any) -> None:
        if not seen:
            seen.append(tree_flatten((args, kwargs))[0])

    def arguments(prefix: Prefix | None, examples: int) -> list[Any]:
        seen.clear()
        handle = cut.register_forward_pre_hook(look, with_kwargs=True)
        try:
            with torch.no_grad():
                if prefix is None:
                    module(inputs[:examples])
                else:
                    prefix.outputs(inputs[:examples], inputs.new_empty((examples, 0), dtype=torch.float32))
        finally:
            handle.remove()
        return seen[0]

    poisoned = arguments(Prefix(module, cut, tuple(skipped), ()), PROBES[0])
    small, big = (arguments(None, examples) for examples in PROBES)
    leaves: dict[int, Leaf] = {}
    for position, value in enumerate(poisoned):
        if not isinstance(value, Tensor) or not value.is_floating_point() or not bool(value.isnan().any()):
            continue
        one, two = small[position], big[position]
        if (
            one.dtype not in (torch.float32, *HALVES)
            or not one.dim()
            or (len(one), len(two)) != PROBES
            or one.shape[1:] != two.shape[1:]
            or one.stride() != two.stride()
        ):
            return ()
        same = leaves[id(one)].positions if id(one) in leaves else ()
        leaves[id(one)] = Leaf((*same, position), tuple(one.shape[1:]), tuple(one.stride()), one.dtype)
    return tuple(leaves.values())


def _skips_nothing_else(flat: FlatModel, prefix: Prefix, inputs: Tensor) -> bool:
    """Whether the prefix has no part in training, and the module gives the same outputs without it."""
    module, probe = flat.module, inputs[: PROBES[1]]
    with torch.no_grad():
        values = prefix.capture(probe)
        for part in (probe[:examples] for examples in PROBES):
            expected = tree_flatten(module(part))[0]
            found = tree_flatten(prefix.outputs(part, prefix.capture(part)))[0]
            if len(found) != len(expected) or not all(map(_equal, found, expected)):
                return False
        # A value that depends on the rest of the batch, as in batch normalisation, belongs to no example.
        if not _close(prefix.capture(probe.flip(0)).flip(0), values) or not _close(
            prefix.capture(probe[1:]), values[1:]
        ):
            return False
    flat.training_mode()
    state = torch.get_rng_state()
    trained = prefix.capture(probe)
    untouched = torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(state)
    # If autograd leads from the values to a trained parameter, it has a part in them.
    return untouched and not trained.requires_grad and _close(trained, values)


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        return torch.equal(found, expected)
    return type(found) is type(expected)


def _worth_it(prefix: Prefix) -> bool:
    tables = {
        id(parameter)
        for layer in prefix.module.modules()
        if isinstance(layer, nn.Embedding)
        for parameter in layer.parameters()
    }
    skipped = {
        id(parameter): parameter.numel()
        for call in prefix.skipped
        for parameter in call.module.parameters()
        if id(parameter) not in tables
    }
    whole = sum(parameter.numel() for parameter in prefix.module.parameters() if id(parameter) not in tables)
    return sum(skipped.values()) >= LEAST_SHARE * whole

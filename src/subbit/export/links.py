"""Finds which layer feeds which: pairs of layers with nothing between them that mixes units.

A *unit* is an output of a linear layer or a filter of a convolution. The module is traced (`torch.export`), and the
output of every layer is followed through operations that treat units separately (activations, batch normalisation in
evaluation mode, pooling, flattening) to the only layer that reads it. If anything else follows, such as a sum, a second
reader or the end of the network, there is no link, and the layer keeps its outputs.

A unit whose weights are all zero has the same value for every input and position. A link computes what becomes of that
value on the way.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.nn import functional

from subbit.core.errors import ModelError

aten = torch.ops.aten
ACTIVATIONS = {
    aten.relu.default, aten.relu_.default, aten.gelu.default, aten.tanh.default, aten.sigmoid.default,
    aten.silu.default, aten.silu_.default, aten.elu.default, aten.elu_.default, aten.leaky_relu.default,
    aten.leaky_relu_.default, aten.hardtanh.default, aten.hardtanh_.default, aten.hardswish.default,
    aten.hardswish_.default, aten.softplus.default, aten.mish.default,
}  # fmt: skip
UNCHANGED = {aten.clone.default, aten.contiguous.default, aten.alias.default, aten.detach.default}
# Padding never wins in a maximum, so a constant map stays constant; in a mean, padding counts as zeros.
POOLS = {aten.max_pool2d.default, aten.adaptive_avg_pool2d.default}
RESHAPES = {aten.view.default, aten.reshape.default, aten.flatten.using_ints}
CONVOLUTIONS = {aten.conv2d.default, aten.conv2d.padding}

Step = Callable[[nn.Module, Tensor], Tensor]
"""Maps the constants of all units to those after one operation, in the current state of the module."""


@dataclass(frozen=True)
class Link:
    producer: str
    consumer: str
    steps: tuple[Step, ...]
    norms: tuple[str, ...]
    """Batch normalisations in between; they lose the same features as the producer."""
    places: int
    """Number of the consumer's columns per unit: the pixels of its map, if flattened."""
    padded: bool
    """The consumer pads with zeros, so that a constant map is not constant to it."""

    def constants(self, module: nn.Module, values: Tensor) -> Tensor:
        for step in self.steps:
            values = step(module, values)
        return values


@dataclass(frozen=True)
class Structure:
    """The result of tracing the module."""

    links: tuple[Link, ...]
    ends: dict[str, str]
    """Layers whose outputs cannot be removed, with the reason."""
    lstms: tuple[tuple[str, str], ...] = ()
    """LSTMs that start from zero, each with the one linear layer that reads its outputs and nothing else of it."""


def trace(module: nn.Module, *examples: Tensor) -> ExportedProgram:
    """`examples` are a batch of at least two inputs, for each argument; the traced batch size is dynamic."""
    try:
        # LSTMs cause a warning that is irrelevant here.
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            shapes: tuple[Any, ...] = tuple({0: Dim.DYNAMIC} for _ in examples)
            takes = inspect.signature(module.forward).parameters.values()
            if any(one.kind is one.VAR_POSITIONAL for one in takes):
                shapes = (shapes,)
            return torch.export.export(module, examples, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # User code may fail in the tracer in any way.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "code specialized it" in str(error):
            reason = "it works for one number of examples only; inputs.shape[0] instead of len(inputs) often helps"
        raise ModelError(f"{type(module).__name__} cannot be traced for export: {reason[:300]}") from error


def find_links(module: nn.Module, example: Tensor) -> Structure:
    program = trace(module, example)
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    links, ends, lstms = [], {}, []
    for node in program.graph.nodes:
        if node.target is aten.lstm.input and (found_lstm := _lstm(module, node, names)):
            lstms.append(found_lstm)
        producer = _layer(module, node, names)
        if producer is not None:
            found = _follow(module, producer, node, names)
            if isinstance(found, Link):
                links.append(found)
            else:
                ends[producer] = found
    return Structure(tuple(links), ends, tuple(lstms))


def _follow(module: nn.Module, producer: str, node: Node, names: dict[str, str]) -> Link | str:
    """The link that starts here, or the reason why there is none."""
    steps: list[Step] = []
    norms: list[str] = []
    places = 1
    axis = 1 if node.target in CONVOLUTIONS else len(_shape(node)) - 1
    while True:
        users = [user for user in node.users if user.target is not aten._assert_tensor_metadata.default]
        if len(users) != 1:
            return f"{len(users)} operations read its output"
        before, node = node, users[0]
        if node.op == "output":
            return "its output is the network's"
        target, arguments = node.target, node.args
        consumer = _layer(module, node, names)
        if consumer is not None:
            if arguments[0] is not before or axis != (1 if target in CONVOLUTIONS else len(_shape(before)) - 1):
                return f"{consumer} reads its output across units"
            padded = target in CONVOLUTIONS and _padding(node) not in ("valid", 0)
            return Link(producer, consumer, tuple(steps), tuple(norms), places, padded)
        plain = arguments[0] is before and not any(isinstance(argument, Node) for argument in arguments[1:])
        if plain and target in ACTIVATIONS:
            steps.append(_activation(node))
        elif plain and (target in UNCHANGED or _is_idle_dropout(node)):
            pass
        elif target is aten.batch_norm.default and axis == 1 and (norm := _norm(module, node, names)):
            steps.append(_normalisation(norm))
            norms.append(norm)
        elif plain and axis == 1 and (target in POOLS or _is_plain_mean(node, before)):
            pass
        elif plain and axis == 1 and target in RESHAPES and _is_flattening(node, before):
            places *= prod(int(side) for side in _shape(before)[2:])
        else:
            return f"{getattr(target, '__name__', target)} reads its output"


def _layer(module: nn.Module, node: Node, names: dict[str, str]) -> str | None:
    """The module of a call to a linear layer or an ordinary convolution whose weight is used nowhere else."""
    if node.target is not aten.linear.default and node.target not in CONVOLUTIONS:
        return None
    weight = node.args[1]
    if not isinstance(weight, Node) or len(weight.users) != 1 or (len(node.args) > 6 and node.args[6] != 1):
        return None
    owner, _, tensor = names.get(weight.name, "").rpartition(".")
    wanted = nn.Conv2d if node.target in CONVOLUTIONS else nn.Linear
    return owner if tensor == "weight" and isinstance(module.get_submodule(owner), wanted) else None


def _lstm(module: nn.Module, node: Node, names: dict[str, str]) -> tuple[str, str] | None:
    """The LSTM of this call and the linear layer that alone reads its outputs, if there is one."""
    states: Any = node.args[1]
    weights: Any = node.args[2]
    owners = {names.get(weight.name, "").rpartition(".")[0] for weight in weights}
    starts_at_zero = all(state.target is aten.zeros.default for state in states)
    alone = all(len(weight.users) == 1 for weight in weights)
    name = owners.pop()
    lstm = module.get_submodule(name)
    if owners or not starts_at_zero or not alone or not isinstance(lstm, nn.LSTM):
        return None
    if lstm.bidirectional or lstm.proj_size or any(user.args[1] != 0 and user.users for user in node.users):
        return None
    output = [user for user in node.users if user.args[1] == 0]
    while len(output) == 1:
        before, readers = output[0], list(output[0].users)
        if len(readers) == 1 and (reader := _layer(module, readers[0], names)) is not None:
            linear = readers[0].target is aten.linear.default and readers[0].args[0] is before
            return (name, reader) if linear else None
        output = [reader for reader in readers if len(readers) == 1 and _keeps_units(reader, before)]
    return None


def _keeps_units(node: Node, before: Node) -> bool:
    """Whether this leaves the last axis as it is: another axis is cut, or nothing happens."""
    if node.target in UNCHANGED or _is_idle_dropout(node):
        return True
    axis = node.args[1] if len(node.args) > 1 else 0
    cuts = node.target in (aten.select.int, aten.slice.Tensor)
    return cuts and isinstance(axis, int) and axis % len(_shape(before)) != len(_shape(before)) - 1


def _norm(module: nn.Module, node: Node, names: dict[str, str]) -> str | None:
    """The module of a batch normalisation in evaluation mode."""
    own = [argument for argument in node.args[1:5] if isinstance(argument, Node)]
    owners = {names.get(argument.name, "").rpartition(".")[0] for argument in own}
    alone = all(len(argument.users) == 1 for argument in own)
    if node.args[5] is not False or not isinstance(node.args[3], Node) or len(owners) != 1 or not alone:
        return None
    name = owners.pop()
    return name if isinstance(module.get_submodule(name), nn.BatchNorm1d | nn.BatchNorm2d) else None


def _activation(node: Node) -> Step:
    # On a copy: some of them work in place.
    return lambda module, values: node.target(values.clone(), *node.args[1:], **node.kwargs)  # type: ignore[operator]


def _normalisation(name: str) -> Step:
    def step(module: nn.Module, values: Tensor) -> Tensor:
        norm: Any = module.get_submodule(name)
        mean, variance = norm.running_mean, norm.running_var
        return functional.batch_norm(values[None], mean, variance, norm.weight, norm.bias, False, 0.0, norm.eps)[0]

    return step


def _is_idle_dropout(node: Node) -> bool:
    return node.target in (aten.dropout.default, aten.dropout_.default) and node.args[2] is False


def _is_plain_mean(node: Node, before: Node) -> bool:
    """Whether this is a mean over positions, which leaves a constant map unchanged."""
    if node.target is aten.mean.dim and len(_shape(before)) == 4:
        return {operator.index(axis) % 4 for axis in node.args[1]} <= {2, 3}  # type: ignore[union-attr, arg-type]
    if node.target is aten.avg_pool2d.default:
        padding = node.args[3] if len(node.args) > 3 else 0
        return not any(_as_list(padding)) and len(node.args) < 7
    return False


def _is_flattening(node: Node, before: Node) -> bool:
    """Whether this is a reshape of [n, units, ...] to [n, units * ...]."""
    inner = _shape(before)[1:]
    return len(_shape(node)) == 2 and str(_shape(node)[0]) == str(_shape(before)[0]) and _shape(node)[1] == prod(inner)


def _padding(node: Node) -> Any:
    """0 or "valid" if a convolution has no padding."""
    padding = node.args[4] if len(node.args) > 4 else 0
    return padding if isinstance(padding, str) else max(_as_list(padding))


def _as_list(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _shape(node: Node) -> Any:
    return node.meta["val"].shape

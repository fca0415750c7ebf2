"""Select the parameters to train with a small language.

    selection = term { "+" term }           the union of its terms
    term      = where [ ":" kinds ]
    where     = "all" | "head" | "backbone" | "last N blocks" | "block N" | a pattern over names such as "*attention*"
    kinds     = kind { ("&" | ",") kind }   kind = "weights" | "biases" | "norms" | "all" (the default)

`norms` are the parameters of normalisation layers. Of all others, `weights` have at least two dimensions and `biases`
fewer (whatever their name, e.g. the layer scales of DINOv2). `backbone` is everything but the head. `block 0` is the
first.

Tied parameters are one, under its first name, and it is selected if one of its names is. Parameters that come with
`requires_grad=False` are left out, unless a pattern or "head" means no others: then they are asked for.

    "last 5 blocks: weights"          what DeltaMask masks
    "last 5 blocks: weights + head"   the same, and the head
    "all: biases, norms + head"       bias tuning
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

from subbit.core.errors import ModelError

KINDS = ("weights", "biases", "norms", "all")
PLACES = ("all", "head", "backbone", "last N blocks", "block N")
HEAD_NAMES = ("head", "classifier", "fc")
BLOCKS = re.compile(r"(last|block)\s+(\d+)(\s+blocks?)?")
NOTED = "_frozen_by_owner"
NORM_CLASS = re.compile(r"norm(\dd)?$", re.IGNORECASE)  # BatchNorm2d, LayerNorm, RMSNorm and their subclasses


def select_parameters(module: nn.Module, selection: str, even_frozen: bool = False) -> list[str]:
    """Names of the selected parameters, in the order of the module. A parameter with two names has its first.

    `even_frozen`: whether `requires_grad` is ignored.
    """
    kinds = parameter_kinds(module)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    frozen = set() if even_frozen else {id(parameter) for parameter in frozen_by_owner(module)}
    chosen: set[int] = set()
    for term in selection.split("+"):
        where, _, kind_words = (part.strip() for part in term.partition(":"))
        wanted = _parse_kinds(selection, kind_words) if ":" in term else {"all"}
        matches = _parse_place(module, selection, where)
        placed = [name for name in kinds if matches(name)]
        if not placed:
            raise ModelError(f"selection {selection!r}: {where!r} {_nothing_there(where, list(kinds))}")
        names = [name for name in placed if "all" in wanted or kinds[name] in wanted]
        if not names:
            found = ", ".join(sorted({kinds[name] for name in placed}))
            raise ModelError(f"selection {selection!r}: {where!r} has no {kind_words}, only {found}")
        found_ids = {id(parameters[name]) for name in names}
        if found_ids <= frozen and (where in ("all", "backbone") or BLOCKS.fullmatch(where)):
            raise ModelError(
                f"selection {selection!r}: all parameters of {where!r} have requires_grad=False; set it to True for "
                "those to train, or select them by a pattern over names"
            )
        chosen |= found_ids - frozen or found_ids
    return [name for name, parameter in module.named_parameters() if id(parameter) in chosen]


def note_frozen(module: nn.Module) -> None:
    """Remember which parameters come with `requires_grad=False`, which training then uses for its own purposes.

    Kept in the module itself, so that copies know it too; `restore_frozen` is the opposite.
    """
    vars(module).setdefault(NOTED, frozen_by_owner(module))


def frozen_by_owner(module: nn.Module) -> list[nn.Parameter]:
    noted: list[nn.Parameter] | None = vars(module).get(NOTED)
    return [value for value in module.parameters() if not value.requires_grad] if noted is None else noted


def restore_frozen(module: nn.Module) -> None:
    """Set `requires_grad` as it was, for whoever uses the module next."""
    frozen = {id(parameter) for parameter in frozen_by_owner(module)}
    if vars(module).pop(NOTED, None) is not None:
        for parameter in module.parameters():
            parameter.requires_grad_(id(parameter) not in frozen)


def parameter_kinds(module: nn.Module) -> dict[str, str]:
    """Every parameter name of the module, in order, with its kind: weights, biases or norms."""
    kinds = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        owner = module.get_submodule(name.rpartition(".")[0])
        if NORM_CLASS.search(type(owner).__name__):
            kinds[name] = "norms"
        else:
            kinds[name] = "weights" if parameter.dim() >= 2 else "biases"
    return kinds


def find_blocks(module: nn.Module) -> tuple[str, int]:
    """Name and length of the list of blocks: the longest list of layers that have parameters and one class."""
    best = ("", 0)
    for name, candidate in module.named_modules():
        if not isinstance(candidate, nn.ModuleList | nn.Sequential):
            continue
        layers = list(candidate)
        alike = len({type(layer) for layer in layers}) == 1
        if alike and len(layers) > best[1] and all(any(True for _ in layer.parameters()) for layer in layers):
            best = (name, len(layers))
    if best[1] == 0:
        raise ModelError(
            f"{type(module).__name__} has no blocks (a ModuleList or Sequential of layers of one class): "
            "select by another place or by a pattern over names"
        )
    return best


def find_head(module: nn.Module) -> str:
    """Name of the head: the top-level submodule called head, classifier or fc, or the last linear layer."""
    children = dict(module.named_children())
    for name in HEAD_NAMES:
        if name in children and any(True for _ in children[name].parameters()):
            return name
    linear_layers: list[str] = [name for name, layer in module.named_modules() if name and isinstance(layer, nn.Linear)]
    if not linear_layers:
        raise ModelError(
            f"{type(module).__name__} has no head: no submodule called {', '.join(HEAD_NAMES)}, none linear"
        )
    return linear_layers[-1]


def _parse_kinds(selection: str, words: str) -> set[str]:
    kinds = {word.strip() for word in re.split("[&,]", words)}
    for kind in kinds - set(KINDS):
        raise ModelError(f"selection {selection!r}: unknown kind {kind!r}; there are: {', '.join(KINDS)}")
    return kinds


def _parse_place(module: nn.Module, selection: str, where: str) -> Callable[[str], bool]:
    """A predicate: whether a parameter name is in that part of the module."""
    if where == "all":
        return lambda name: True
    if where in ("head", "backbone"):
        head = find_head(module) + "."
        return lambda name: name.startswith(head) == (where == "head")
    if match := BLOCKS.fullmatch(where):
        word, number = match[1], int(match[2])
        if (word == "last") == (match[3] is not None):
            blocks, count = find_blocks(module)
            if not (1 <= number <= count if word == "last" else number < count):
                raise ModelError(f"selection {selection!r}: there are {count} blocks in {blocks or 'the module'!r}")
            numbers = range(count - number, count) if word == "last" else [number]
            prefixes = tuple(f"{blocks}.{block}.".removeprefix(".") for block in numbers)
            return lambda name: name.startswith(prefixes)
    return lambda name: fnmatchcase(name, where)


def _nothing_there(where: str, names: list[str]) -> str:
    near = get_close_matches(where, [*PLACES, *names], n=3, cutoff=0.5) or get_close_matches(
        where, names, n=3, cutoff=0.2
    )
    shown = ", ".join(near or names[:3])
    return (
        f"matches none of {len(names)} parameters. Near: {shown}. Places: {', '.join(PLACES)}, or a pattern over names"
    )

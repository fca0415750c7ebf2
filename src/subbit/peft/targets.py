"""Finds the layers to which LoRA is added: those that are named, or for any model family the usual ones.

blocks with attention      the layers for queries and values, by the names of `blocks.PROJECTIONS`
transformers' models       else those in peft's list for this `model_type`: `c_attn` of GPT-2, and so on
without attention          all convolutions outside the head, except grouped ones
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

from subbit.core.errors import ModelError
from subbit.models.select import find_head
from subbit.peft.blocks import ATTENTION, Linear, is_linear, query_and_value, transformer_blocks

AUTO = "auto"
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Target = Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


def find_targets(base: nn.Module, wanted: str = AUTO) -> list[str]:
    """Names of layers. `wanted`: `auto`, or ends of names or patterns over them, with commas in between."""
    if wanted != AUTO:
        return _named(base, [word.strip() for word in wanted.split(",")])
    config = getattr(base, "config", None)
    if getattr(config, "is_encoder_decoder", False):  # Two lists of blocks, of which only one would be found.
        found = _listed(base)
        if found:
            return found
    try:
        blocks = transformer_blocks(base, "tuning=lora")
        return [f"{name}.{layer}" for name, block in blocks.items() for layer in query_and_value(block)]
    except ModelError as error:
        found = _listed(base) or _convolutions(base)
        if not found:
            raise ModelError(f'{error}. Name the layers to change, e.g. lora_targets="q_proj, v_proj"') from None
        return found


def can_change(layer: nn.Module) -> bool:
    return is_linear(layer) or (isinstance(layer, CONVOLUTIONS) and layer.groups == 1)


def _named(base: nn.Module, words: list[str]) -> list[str]:
    names = [name for name, _ in base.named_modules() if name]
    chosen: set[str] = set()
    for word in words:
        matching = [name for name in names if f".{name}".endswith(f".{word}") or fnmatchcase(name, word)]
        fitting = [name for name in matching if can_change(base.get_submodule(name))]
        if not fitting:
            kinds = ", ".join(sorted({type(base.get_submodule(name)).__name__ for name in matching}))
            ends = sorted({name.rpartition(".")[2] for name in names if can_change(base.get_submodule(name))})
            near = ", ".join(get_close_matches(word, ends, n=3, cutoff=0.4) or ends[:5])
            found = f"is {kinds}" if matching else "matches no layer"
            raise ModelError(
                f"lora_targets: {word!r} {found}; needs linear layers or convolutions without groups, e.g. {near}"
            )
        chosen.update(fitting)
    return [name for name in names if name in chosen]


def _listed(base: nn.Module) -> list[str]:
    """Of peft's list for this kind of model."""
    kind = getattr(getattr(base, "config", None), "model_type", None)
    if not isinstance(kind, str):
        return []
    try:
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as LISTS
    except ImportError:
        return []
    wanted = LISTS.get(kind, [])
    return [
        name
        for name, layer in base.named_modules()
        if can_change(layer)
        and (re.fullmatch(wanted, name) if isinstance(wanted, str) else name.rpartition(".")[2] in wanted)
    ]


def _convolutions(base: nn.Module) -> list[str]:
    if any(ATTENTION.search(type(layer).__name__) for layer in base.modules()):
        return []  # A transformer whose layers have other names; its patch embedding alone is not what is meant.
    try:
        head = find_head(base)
    except ModelError:
        head = ""
    return [
        name
        for name, layer in base.named_modules()
        if isinstance(layer, CONVOLUTIONS) and can_change(layer) and not (head and f"{name}.".startswith(f"{head}."))
    ]

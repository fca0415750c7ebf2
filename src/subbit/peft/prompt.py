"""Visual prompt tuning: trained tokens prepended in every block (deep) or only at the input (shallow).

    deep      x_{i+1} = block_i([prompt_i, x_i]) without the prompt tokens
    shallow   the prompt enters before the first block, passes through all, and is dropped after the last

Jia et al., "Visual Prompt Tuning", ECCV 2022. Prompts are initialised uniformly in +-sqrt(6 / (inputs of a patch +
width)), as in the paper. The added tokens are not visible outside the blocks, so pooling is unchanged. Attention masks
are widened so that every token may attend to the prompt. In a causal model a prompt token sees those before it, and
no text; where positions are rotations (Llama), the prompt is where the text begins.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.peft.blocks import transformer_blocks, width_of


class Prompt(nn.Module):
    def __init__(self, tokens: int, width: int, bound: float) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(tokens, width).uniform_(-bound, bound))

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.cat([self.tokens.to(hidden.dtype).expand(hidden.shape[0], -1, -1), hidden], dim=1)


def add_prompts(module: nn.Module, tokens: int, *, deep: bool) -> None:
    blocks = list(transformer_blocks(module, f"tuning={'prompt' if deep else 'prefix'}").values())
    width = width_of(blocks[0])
    bound = math.sqrt(6 / (_inputs_of_a_patch(module, width) + width))
    for block in blocks:
        _refuse_tokens_first(block)
        block.register_forward_pre_hook(partial(_widen, tokens), with_kwargs=True)
    for block in blocks if deep else blocks[:1]:
        block.add_module("prompt", Prompt(tokens, width, bound))
        block.register_forward_pre_hook(_insert, with_kwargs=True)
    for block in blocks if deep else blocks[-1:]:
        block.register_forward_hook(partial(_drop, tokens))


def _inputs_of_a_patch(module: nn.Module, width: int) -> int:
    """Text models have no patches; there the width is used."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d):
            return math.prod(layer.weight.shape[1:])
    return width


def _refuse_tokens_first(block: nn.Module) -> None:
    for layer in block.modules():
        if isinstance(layer, nn.MultiheadAttention) and not layer.batch_first:
            raise ModelError(f"{type(block).__name__} takes [tokens, n, width]: prompts need [n, tokens, width]")


def _insert(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    prompt = block.get_submodule("prompt")
    if args:
        return (prompt(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": prompt(kwargs["hidden_states"])}


def _drop(tokens: int, block: nn.Module, inputs: Any, output: Any) -> Any:
    if isinstance(output, tuple):
        return (output[0][:, tokens:], *output[1:])
    return output[:, tokens:]


def _widen(
    tokens: int, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Transformer blocks take the attention mask as a keyword or positional argument."""
    if kwargs.get("position_embeddings") is not None:
        rotations = tuple(_widened_rotation(each, tokens) for each in kwargs["position_embeddings"])
        kwargs = {**kwargs, "position_embeddings": rotations}
    widened = _widened_causal if _is_causal(block) else _widened
    if kwargs.get("attention_mask") is not None:
        return args, {**kwargs, "attention_mask": widened(kwargs["attention_mask"], tokens)}
    names = list(inspect.signature(block.forward).parameters)
    place = names.index("attention_mask") if "attention_mask" in names else len(args)
    if place < len(args) and args[place] is not None:
        return (*args[:place], widened(args[place], tokens), *args[place + 1 :]), kwargs
    return args, kwargs


def _is_causal(block: nn.Module) -> bool:
    """The attention of transformers says so; without a mask it is then causal by itself, the prompt included."""
    return any(getattr(layer, "is_causal", False) is True for layer in block.modules())


def _widened_rotation(values: Tensor, tokens: int) -> Tensor:
    """[n, tokens, width], with the rotation of the first token for the prompt."""
    return torch.cat([values[:, :1].expand(-1, tokens, -1), values], dim=1)


def _widened(mask: Tensor, tokens: int) -> Tensor:
    """Extend a mask [n, heads, queries, keys], boolean or additive, by this many leading tokens.

    Masks hide padding, the same for every query: prompt tokens see what the first token sees.
    """
    _check_mask(mask)
    if mask.shape[2] > 1:
        mask = torch.cat([mask[:, :, :1].expand(-1, -1, tokens, -1), mask], dim=2)
    attend = mask.new_full((*mask.shape[:3], tokens), mask.dtype == torch.bool)
    return torch.cat([attend, mask], dim=3)


def _widened_causal(mask: Tensor, tokens: int) -> Tensor:
    """The same where a token sees only those before it. What an attention without a mask does, so that a text does not
    depend on whether others in its batch have padding."""
    _check_mask(mask)
    yes, no = (True, False) if mask.dtype == torch.bool else (0.0, torch.finfo(mask.dtype).min)
    before = torch.ones(tokens, tokens, dtype=torch.bool, device=mask.device).tril()
    own = torch.where(before, mask.new_tensor(yes), mask.new_tensor(no)).expand(*mask.shape[:2], -1, -1)
    no_text = mask.new_full((*mask.shape[:2], tokens, mask.shape[3]), no)
    attend = mask.new_full((*mask.shape[:3], tokens), yes)
    return torch.cat([torch.cat([own, no_text], dim=3), torch.cat([attend, mask], dim=3)], dim=2)


def _check_mask(mask: Tensor) -> None:
    if mask.dim() != 4:
        raise ModelError(f"prompts need an attention mask [n, heads, queries, keys]: found {list(mask.shape)}")

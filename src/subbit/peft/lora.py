"""LoRA with the peft library: W + (alpha / rank) B A on the layers that compute queries and values, or others.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022. B starts at zero, so the network is
initially unchanged, bit for bit. `save_adapter` writes files that peft can load.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from subbit.core.errors import ConfigError, ModelError
from subbit.models.select import find_head
from subbit.models.turned_layers import is_turned
from subbit.peft.blocks import is_linear, outputs_of
from subbit.peft.targets import AUTO, Target, find_targets

WEIGHTS_FILE, HEAD_FILE = "adapter_model.safetensors", "head.safetensors"


def add_lora(module: nn.Module, rank: int, alpha: int, wanted: str = AUTO) -> None:
    base = base_model(module)
    targets = find_targets(base, wanted)
    layers = [base.get_submodule(target) for target in targets]
    if all(parameter.is_meta for parameter in base.parameters()):
        _add_shapes(layers, rank)
        return
    peft = _library()
    transposed = any(map(is_turned, layers))
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=_exactly(targets, base), fan_in_fan_out=transposed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Where some layers are transposed and others not, peft says so and goes on.
        peft.inject_adapter_in_model(config, base)
    for name, parameter in base.named_parameters():
        if "lora_" in name:  # peft follows the base's precision and casts on its way.
            parameter.data = parameter.data.float()


def _exactly(targets: list[str], base: nn.Module) -> list[str] | str:
    """The targets as peft takes them. It also takes what ends like one of them: then a pattern is needed."""
    ends = tuple(f".{target}" for target in targets)
    others = any(name.endswith(ends) and name not in targets for name, _ in base.named_modules())
    return f"(?:{'|'.join(map(re.escape, targets))})" if others else targets


def _add_shapes(layers: Iterable[Target], rank: int) -> None:
    """What peft adds, for a network without values, whose parameters are only counted: peft takes seconds to import."""
    for layer in layers:
        weights = layer.weight.numel()
        outputs = outputs_of(layer) if is_linear(layer) else layer.out_channels
        layer.add_module("lora_A", nn.Linear(weights // outputs, rank, bias=False, device="meta"))
        layer.add_module("lora_B", nn.Linear(rank, outputs, bias=False, device="meta"))


def base_model(module: nn.Module) -> nn.Module:
    """The base model in peft's sense: the backbone of a classifier, as a transformers model."""
    backbone = getattr(module, "backbone", None)
    return backbone if isinstance(backbone, nn.Module) else module


def save_adapter(module: nn.Module, folder: Path) -> None:
    """Save the LoRA of a trained classifier as a folder for `PeftModel.from_pretrained(backbone, folder)`.

    The head is not part of peft's adapter and is saved in a separate file: `weight` and `bias` of a linear layer. That
    of a language model is not trained and not saved.
    """
    from safetensors.torch import save_file

    peft = _library()
    base = base_model(module)
    configs: dict[str, Any] = getattr(base, "peft_config", {})
    if not configs:
        raise ModelError(f"{type(base).__name__} has no LoRA to save: train with method=fedpeft tuning=lora")
    folder.mkdir(parents=True, exist_ok=True)
    state = peft.get_peft_model_state_dict(base)
    # Trained tensors are views into one buffer, which safetensors rejects, so they are cloned.
    adapter = {f"base_model.model.{name}": tensor.detach().clone() for name, tensor in state.items()}
    save_file(adapter, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    configs["default"].save_pretrained(str(folder))
    name = trained_head(module)
    if name is None:
        return
    head = module.get_submodule(name)
    save_file({name: tensor.detach().clone() for name, tensor in head.state_dict().items()}, folder / HEAD_FILE)


def trained_head(module: nn.Module) -> str | None:
    """Name of the head that is trained with what a tuning adds; None if there is none.

    The output layer of a language model, often tied to its embeddings, is no head: it is as large as they are, and
    trained already.
    """
    find_outputs = getattr(module, "get_output_embeddings", None)
    try:
        if callable(find_outputs) and find_outputs() is not None:
            return None
        return find_head(module)
    except (ModelError, NotImplementedError):
        return None


def _library() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError(f"tuning=lora needs the peft library ({error}): pip install 'subbit[peft]'") from None
    return peft

"""LoRA with the peft library: W + (alpha / rank) B A on the layers that compute queries and values.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022. B starts at zero, so the network is
initially unchanged, bit for bit. `save_adapter` writes files that peft can load.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from subbit.core.errors import ConfigError, ModelError
from subbit.models.select import find_head
from subbit.peft.blocks import query_and_value, transformer_blocks

WEIGHTS_FILE, HEAD_FILE = "adapter_model.safetensors", "head.safetensors"


def add_lora(module: nn.Module, rank: int, alpha: int) -> None:
    base = base_model(module)
    blocks = transformer_blocks(base, "tuning=lora")
    targets = [f"{name}.{layer}" for name, block in blocks.items() for layer in query_and_value(block)]
    if all(parameter.is_meta for parameter in base.parameters()):
        _add_shapes(base, targets, rank)
        return
    peft = _library()
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets), base)


def _add_shapes(base: nn.Module, targets: list[str], rank: int) -> None:
    """What peft adds, for a network without values, whose parameters are only counted: peft takes seconds to import."""
    for target in targets:
        layer = base.get_submodule(target)
        if not isinstance(layer, nn.Linear):
            raise ModelError(f"{target} is no linear layer: LoRA needs one")
        layer.add_module("lora_A", nn.Linear(layer.in_features, rank, bias=False, device="meta"))
        layer.add_module("lora_B", nn.Linear(rank, layer.out_features, bias=False, device="meta"))


def base_model(module: nn.Module) -> nn.Module:
    """The base model in peft's sense: the backbone of a classifier, as a transformers model."""
    backbone = getattr(module, "backbone", None)
    return backbone if isinstance(backbone, nn.Module) else module


def save_adapter(module: nn.Module, folder: Path) -> None:
    """Save the LoRA of a trained classifier as a folder for `PeftModel.from_pretrained(backbone, folder)`.

    The head is not part of peft's adapter and is saved in a separate file: `weight` and `bias` of a linear layer.
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
    head = module.get_submodule(find_head(module))
    save_file({name: tensor.detach().clone() for name, tensor in head.state_dict().items()}, folder / HEAD_FILE)


def _library() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError(f"tuning=lora needs the peft library ({error}): pip install 'subbit[peft]'") from None
    return peft

"""Causal language models of transformers, by hub name or folder: the whole model with its own output layer.

As for classifiers, only safetensors are read, no code from a checkpoint is run, and a checkpoint that lacks weights is
rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import float32, nn

from subbit.core.errors import ModelError
from subbit.core.randomness import derive_key, torch_randomness
from subbit.models.load_model import BUNDLED, VIT_MICRO, check_bundled, explained, is_small, quiet


def is_language_source(name: str) -> bool:
    """Whether it is a hub name or a folder, or the bundled language model, and no other of our own models."""
    return name != VIT_MICRO and not is_small(name) and ("/" in name or Path(name).expanduser().is_dir())


def load_language_model(
    name: str, *, key: int, pretrained: bool = True, length: int | None = None, revision: str = "main"
) -> nn.Module:
    """`pretrained=False` is the same architecture with random weights drawn from `key`; `length` is that of a text."""
    folder = BUNDLED.get(name, Path(name).expanduser())
    source = str(folder) if folder.is_dir() else name
    if name in BUNDLED:
        check_bundled(name)
    if revision != "main" and folder.is_dir():
        raise ModelError(f"revision={revision!r}: {name!r} is not from the hub and has no revisions; leave it out")
    with quiet(), torch_randomness(derive_key(key, "backbone")), explained(name):
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ModelError(
                f"{name} is a {config.model_type!r} model: objective=language needs a causal language model, such as "
                "GPT-2 or Llama"
            )
        _check_length(name, config, length)
        model = _load(source, config, revision) if pretrained else AutoModelForCausalLM.from_config(config).float()
    config = getattr(model, "config", None)
    if config is not None:
        config.use_cache = False  # What generating text would need takes memory in every batch.
    return model


def _check_length(name: str, config: Any, length: int | None) -> None:
    longest = getattr(config, "max_position_embeddings", None)
    if length is not None and longest is not None and length > longest:
        raise ModelError(f"{name}: texts of {length} tokens; needs at most {longest}")


def _load(source: str, config: Any, revision: str) -> nn.Module:
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(
        source,
        config=config,
        revision=revision,
        use_safetensors=True,
        dtype=float32,
        output_loading_info=True,
    )
    lacking = sorted({*report["missing_keys"], *(str(entry) for entry in report["mismatched_keys"])})
    if lacking:
        raise ModelError(
            f"{source} lacks {len(lacking)} weights of a language model, e.g. {lacking[0]}: it was saved without its "
            "output layer, or for another task"
        )
    loaded: nn.Module = model
    return loaded

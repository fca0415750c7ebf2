"""Counts the parameters that a tuning trains, on the real modules without weights (torch's meta device)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from subbit.core.errors import ModelError
from subbit.models.backbones import read_architecture
from subbit.models.classifier import Classifier
from subbit.models.load_model import BUNDLED, VIT_MICRO, explained
from subbit.models.select import select_parameters
from subbit.models.vit import Vit, VitSizes, read_sizes


@dataclass(frozen=True)
class Count:
    trained: int
    total: int
    """Parameters of the module, including added ones."""


def _videomae_b() -> Any:
    from transformers import VideoMAEConfig

    return VideoMAEConfig()


def _bert_mini() -> Any:
    from transformers import BertConfig

    return BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)


VIT_B16 = "vit-b16"
NAMED: dict[str, Callable[[], Any]] = {"videomae-b": _videomae_b, "bert-mini": _bert_mini}
"""Backbones of paper 003, for which no file is needed, in addition to `VIT_B16`."""


def weightless_classifier(model: str, classes: int) -> nn.Module:
    """The named classifier on the meta device. From a folder or a hub model only config.json is read."""
    if classes < 1:
        raise ModelError(f"classes={classes}: needs at least 1")
    if model in (VIT_B16, VIT_MICRO):  # Our own class: transformers takes seconds to import.
        sizes = VitSizes() if model == VIT_B16 else read_sizes(BUNDLED[model])
        with torch.device("meta"):
            return Classifier(Vit(sizes), nn.Linear(sizes.hidden_size, classes))
    with explained(model):
        architecture = read_architecture(model, _config(model), "auto")
        with torch.device("meta"):
            return architecture.classifier(architecture.random(), nn.Linear(architecture.width, classes))


def _config(model: str) -> Any:
    from transformers import AutoConfig

    if model in NAMED:
        return NAMED[model]()
    folder = BUNDLED.get(model, Path(model).expanduser())
    if not folder.is_dir() and "/" not in model:
        raise ModelError(
            f"no model {model!r}: there are {', '.join([VIT_B16, *NAMED, *BUNDLED])}, hub names such as owner/model, "
            "and folders with config.json"
        )
    return AutoConfig.from_pretrained(str(folder) if folder.is_dir() else model, trust_remote_code=False)


def count(model: str, classes: int, add: Callable[[nn.Module], str | None]) -> Count:
    """`add` is a tuning: it adds its modules in place and returns the selection of what is trained."""
    module = weightless_classifier(model, classes)
    with torch.device("meta"):
        selection = add(module)
    names = select_parameters(module, selection or "all")
    sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
    return Count(sum(sizes[name] for name in names), sum(sizes.values()))

"""A tiny random network of every family, loaded from a folder as any user's would be, and inputs for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subbit.core.randomness import torch_generator, torch_randomness
from subbit.models.classifier import Classifier
from subbit.models.load_model import load_classifier

CLASSES = 5
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
PICTURES = {"image_size": 16, "patch_size": 8}
FAMILIES = ("vit", "clip", "dinov2", "videomae", "bert")


def write_family(family: str, folder: Path, **options: Any) -> None:
    import transformers

    wide = {**SIZES, "intermediate_size": 32, **options}
    makers: dict[str, tuple[str, str, dict[str, Any]]] = {
        "vit": ("ViTModel", "ViTConfig", {**wide, **PICTURES}),
        "clip": ("CLIPVisionModel", "CLIPVisionConfig", {**wide, **PICTURES}),
        "dinov2": ("Dinov2Model", "Dinov2Config", {**SIZES, **PICTURES, **options}),
        "videomae": ("VideoMAEForVideoClassification", "VideoMAEConfig", {**wide, **PICTURES, "num_frames": 4}),
        "bert": ("BertModel", "BertConfig", {**wide, "vocab_size": 40, "max_position_embeddings": 12}),
    }
    model, config, values = makers[family]
    with torch_randomness(3):
        network = getattr(transformers, model)(getattr(transformers, config)(**values))
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter)  # Zeros, where they all start, would hide a bias that is left out.
    network.save_pretrained(folder)


def load_family(family: str, folder: Path, **options: Any) -> Classifier:
    write_family(family, folder, **options)
    network = load_classifier(str(folder), CLASSES, key=0)
    assert isinstance(network, Classifier)
    return network.eval()


def inputs_for(family: str, count: int = 2) -> Tensor:
    generator = torch_generator(1)
    if family == "bert":
        return torch.randint(1, 40, (count, 7), generator=generator)
    shape = (count, 4, 3, 16, 16) if family == "videomae" else (count, 3, 16, 16)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

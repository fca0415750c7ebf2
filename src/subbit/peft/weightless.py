"""Networks without values, on torch's meta device: from a configuration alone, to count what they have and need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.models.backbones import Architecture, read_architecture
from subbit.models.classifier import Classifier
from subbit.models.load_model import BUNDLED, explained
from subbit.models.vit import Vit, VitSizes, read_sizes

CLASSES = 10
LENGTH = 512
"""Tokens of a text, if nothing else is said."""


def _videomae_b() -> Any:
    from transformers import VideoMAEConfig

    return VideoMAEConfig()


def _bert_mini() -> Any:
    from transformers import BertConfig

    return BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)


VIT_B16 = "vit-b16"
NAMED: dict[str, Callable[[], Any]] = {"videomae-b": _videomae_b, "bert-mini": _bert_mini}
"""Backbones of paper 003, for which no file is needed, in addition to `VIT_B16`."""


@dataclass(frozen=True)
class Weightless:
    module: nn.Module
    inputs: Mapping[str, Tensor]
    """Of one example, by the name of the argument; of the first argument if the name is empty."""
    example: str
    """What one example is, for people."""
    is_decoder: bool = False
    """Whether it has the output layer of a language model, and no classes."""


def weightless(model: str, classes: int | None = None, length: int | None = None) -> Weightless:
    """The named network. From a folder or a hub model only config.json is read; a path to such a file will do.

    One that continues texts has its own output layer unless it is to tell `classes` apart. `length` is that of a text.
    """
    if classes is not None and classes < 1:
        raise ModelError(f"classes={classes}: needs at least 1")
    if length is not None and length < 1:
        raise ModelError(f"length={length}: needs at least 1")
    if model == VIT_B16 or _is_vit(model):  # Our own class: transformers takes seconds to import.
        sizes = VitSizes() if model == VIT_B16 else read_sizes(BUNDLED[model])
        shape = (1, sizes.num_channels, sizes.image_size, sizes.image_size)
        with torch.device("meta"):
            module = Classifier(Vit(sizes), nn.Linear(sizes.hidden_size, classes or CLASSES))
            return Weightless(module, {"": torch.empty(shape)}, _image(shape))
    with explained(model):
        config = _config(model)
        architecture = read_architecture(model, config, "auto")
        with torch.device("meta"):
            if architecture.pooling == "last" and classes is None:
                return _decoder(config, length)
            head = nn.Linear(architecture.width, classes or CLASSES)
            return _classifier(architecture, architecture.classifier(architecture.random(), head), length)


def _is_vit(model: str) -> bool:
    return model in BUNDLED and _read(BUNDLED[model] / "config.json").get("model_type") == "vit"


def _decoder(config: Any, length: int | None) -> Weightless:
    from transformers import AutoModelForCausalLM

    tokens = _tokens(config, length)
    # A whole mask: from anything less transformers would have to read values.
    mask = torch.empty(1, 1, tokens, tokens, dtype=torch.bool)
    inputs = {"input_ids": torch.empty(1, tokens, dtype=torch.long), "attention_mask": mask}
    module = AutoModelForCausalLM.from_config(config).float()
    return Weightless(module, {**inputs, "labels": inputs["input_ids"]}, f"text of {tokens} tokens", is_decoder=True)


def _classifier(architecture: Architecture, module: Classifier, length: int | None) -> Weightless:
    config = architecture.config
    if architecture.kind == "text":
        tokens = _tokens(config, length)
        return Weightless(module, {"": torch.empty(1, tokens, dtype=torch.long)}, f"text of {tokens} tokens")
    size = architecture.image_size
    frames = (config.num_frames,) if architecture.kind == "video" else ()
    shape = (1, *frames, getattr(config, "num_channels", 3), size, size)
    return Weightless(module, {"": torch.empty(shape)}, _image(shape))


def _tokens(config: Any, length: int | None) -> int:
    longest = getattr(config, "max_position_embeddings", None) or LENGTH
    if length is not None and length > longest:
        raise ModelError(f"length={length}: this model takes texts of at most {longest} tokens")
    return length or min(LENGTH, longest)


def _image(shape: tuple[int, ...]) -> str:
    what = "video" if len(shape) == 5 else "image"
    return f"{what} of {'x'.join(map(str, shape[1:]))}"


def _config(model: str) -> Any:
    from transformers import AutoConfig

    if model in NAMED:
        return NAMED[model]()
    path = BUNDLED.get(model) or Path(model).expanduser()
    if path.is_file():
        values = _read(path)
        kind = values.pop("model_type", None)
        if not isinstance(kind, str):
            raise ModelError(f"{model} names no model_type: needs the config.json of a model of transformers")
        return AutoConfig.for_model(kind, **values)
    if not path.is_dir() and "/" not in model:
        raise ModelError(
            f"no model {model!r}: there are {', '.join([VIT_B16, *NAMED, *BUNDLED])}, hub names such as owner/model, "
            "folders with config.json, and paths to such a file"
        )
    return AutoConfig.from_pretrained(str(path) if path.is_dir() else model, trust_remote_code=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds no JSON object: needs the config.json of a model of transformers")
    return values

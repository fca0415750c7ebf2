"""Trained networks as models of transformers, which their own `from_pretrained` loads.

Our classifier is a backbone and a linear head on its features. Where a model of transformers computes the same, such as
`ViTForImageClassification` on the class token, the head is part of it; whether it is the same is tried on examples.
Else the backbone alone is a model of transformers. A network to which a method added parts is neither.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subbit.core.randomness import torch_randomness
from subbit.data.batches import Preprocess
from subbit.models.classifier import Classifier
from subbit.models.load_model import BUNDLED, quiet
from subbit.models.vit import Vit
from subbit.objectives.objective import logits_of
from subbit.runtime.networks import Network

TOLERANCE = 1e-5
"""Largest difference of an output, relative to the largest output or 1, whichever is greater."""
WHERE = {
    "cls": "the first token",
    "mean": "the mean of the tokens (of an image: of all but the first)",
    "pooled": "the pooled output",
}


@dataclass(frozen=True)
class Pretrained:
    model: Any
    """A `PreTrainedModel`."""
    whole: bool
    """Whether it has the head too."""
    loads: str
    """How to load it, in words."""


def as_pretrained(network: Network, module: nn.Module) -> Pretrained | None:
    """None if no model of transformers computes what the module does. `module` is the network's, or a copy."""
    from transformers import PreTrainedModel

    with quiet(), torch_randomness(0):
        if isinstance(module, PreTrainedModel):
            plain = _plain(module)
            if plain is None or not _agree(network, module, _call(plain, network)):
                return None
            return Pretrained(plain, True, f"transformers.{type(plain).__name__}.from_pretrained(FOLDER)")
        if not isinstance(module, Classifier):
            return None
        plain = _backbone(module)
        if plain is None or not _agree(network, module, _logits(module, plain, network)):
            return None
        whole = _with_head(module, plain)
        if whole is not None and _agree(network, module, _call(whole, network, module)):
            return Pretrained(whole, True, f"transformers.{type(whole).__name__}.from_pretrained(FOLDER)")
        if module.norm is not None:
            return None  # There is no place for it.
    without = ", add_pooling_layer=False" if _lacks_pooler(plain) else ""
    return Pretrained(
        plain,
        False,
        f"transformers.AutoModel.from_pretrained(FOLDER{without}) is the backbone; the head is head.safetensors, a "
        f"linear layer on {WHERE[module.pooling]}, and no classifier of transformers does that",
    )


def _backbone(module: Classifier) -> Any:
    """The backbone as a model of transformers; None if it is none, or has more than one."""
    from transformers import AutoConfig, AutoModel, PreTrainedModel

    if isinstance(module.backbone, PreTrainedModel):
        return _plain(module.backbone)
    if not isinstance(module.backbone, Vit):
        return None
    config = AutoConfig.from_pretrained(BUNDLED["subbit/vit-micro"])
    return _filled(AutoModel.from_config(config, add_pooling_layer=False), module.backbone.state_dict())


def _plain(model: Any) -> Any:
    options = {"add_pooling_layer": False} if _lacks_pooler(model) else {}
    return _filled(type(model)(copy.deepcopy(model.config), **options), model.state_dict())


def _lacks_pooler(model: Any) -> bool:
    return "add_pooling_layer" in inspect.signature(type(model).__init__).parameters and model.pooler is None


def _filled(model: Any, weights: Mapping[str, Tensor]) -> Any:
    try:
        model.load_state_dict(weights)
    except RuntimeError:  # A method added parts, or changed shapes.
        return None
    return model.float().eval()


def _with_head(module: Classifier, plain: Any) -> Any:
    """The model of transformers for classification with this backbone and our head; None if there is none."""
    import transformers

    kinds = {"image": "Image", "video": "Video", "text": "Sequence"}
    maker = getattr(transformers, f"AutoModelFor{kinds[module.kind]}Classification")
    config = copy.deepcopy(plain.config)
    config.num_labels = module.head.out_features
    try:
        model = maker.from_config(config)
    except (ValueError, TypeError, AttributeError):
        return None
    body = getattr(model, model.base_model_prefix, None)
    if body is None or body.load_state_dict(plain.state_dict(), strict=False).missing_keys:
        return None
    heads = [
        layer
        for name, layer in model.named_children()
        if isinstance(layer, nn.Linear) and layer.weight.shape == module.head.weight.shape and layer.bias is not None
    ]
    if len(heads) != 1:
        return None
    heads[0].load_state_dict(module.head.state_dict())
    if module.norm is not None and getattr(model, "fc_norm", None) is not None:
        model.fc_norm.load_state_dict(module.norm.state_dict())
    return model.eval()


def _call(model: Any, network: Network, module: Classifier | None = None) -> Any:
    with torch.no_grad():
        if module is None:
            return network.objective.outputs(model, network.some)
        return model(**module.arguments(network.some.tensor))


def _logits(module: Classifier, plain: Any, network: Network) -> Tensor:
    """What the classifier computes with this backbone."""
    made = Classifier(plain, module.head, module.pooling, module.preprocess, kind=module.kind, norm=module.norm)
    made.padding = module.padding
    with torch.no_grad():
        outputs: Tensor = made.eval()(network.some.tensor)
    return outputs


def _agree(network: Network, module: nn.Module, found: Any) -> bool:
    with torch.no_grad():
        expected = logits_of(network.objective.outputs(module, network.some))
    told = logits_of(found)
    if told.shape != expected.shape:
        return False
    # Written so that a NaN difference fails.
    return bool((told - expected).abs().max() <= TOLERANCE * max(1.0, float(expected.abs().max())))


def write_pretrained(found: Pretrained, module: nn.Module, folder: Path) -> None:
    with quiet():
        found.model.save_pretrained(folder)
    preprocess = getattr(module, "preprocess", None)
    if isinstance(preprocess, Preprocess):
        numbers = {"image_mean": preprocess.mean.flatten().tolist(), "image_std": preprocess.std.flatten().tolist()}
        size, channels = preprocess.image_size, preprocess.channels or len(numbers["image_mean"])
        settings = {
            "do_resize": size is not None,
            "do_rescale": True,
            "do_normalize": True,
            "rescale_factor": 1 / 255,
            "resample": 2,
            # Processors of transformers need a number for each channel.
            **{name: values * channels if len(values) == 1 else values for name, values in numbers.items()},
            "size": {"height": size, "width": size},
        }
        text = json.dumps(settings, indent=2) + "\n"
        (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")

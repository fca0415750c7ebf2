"""Read a folder of `subbit export --module` back as a module. No code from the folder is run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from subbit.core.errors import FrameError, ModelError, RunFolderError, SubbitError
from subbit.core.pieces import Tables, flattened
from subbit.export.module_folder import BASE, DESCRIPTION, FORMAT, WEIGHTS
from subbit.export.recipe import Recipe, build_description
from subbit.methods.names import find_method
from subbit.models import load_classifier
from subbit.models.load_model import explained, quiet
from subbit.peft.lora import HEAD_FILE, base_model


def load_module(folder: str | Path, module: nn.Module | None = None) -> nn.Module:
    """The trained network of a folder that `subbit export --module` or `save` wrote, in evaluation mode.

    `module` is the architecture if it has no name, as for one given to `fine_tune`; it is copied.
    """
    path = Path(folder)
    about = _read_description(path)
    try:
        network = _load(path, about, module)
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError("value", f"{path / DESCRIPTION} does not fit: {type(error).__name__}: {error}") from None
    network.eval()
    if about.get("batchnorm") == "batch":
        for layer in network.modules():
            if isinstance(layer, _NormBase):
                layer.train().track_running_stats = False
    return network


def _read_description(path: Path) -> dict[str, Any]:
    try:
        about = dict(json.loads((path / DESCRIPTION).read_text(encoding="utf-8")))
    except OSError as error:
        raise RunFolderError(f"cannot read {path / DESCRIPTION}: {error.strerror}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise FrameError("not-a-frame", f"{path / DESCRIPTION} is damaged: {error}") from None
    if about.get("format") != FORMAT:
        raise FrameError(
            "version", f"{path / DESCRIPTION} has format {about.get('format')}; this version reads {FORMAT}"
        )
    return about


def _load(path: Path, about: dict[str, Any], module: nn.Module | None) -> nn.Module:
    if about["kind"] == "adapter":
        return _load_adapter(path, module)
    if about["kind"] == "transformers":
        return _load_pretrained(path, about)
    if about["kind"] != "state":
        raise ValueError(f"kind {about['kind']!r}")
    network = _build(path, about) if module is None else copy.deepcopy(module)
    if "added" in about:
        _add(network, about["added"])
    _fill(network, path / WEIGHTS)
    return network


def _build(path: Path, about: dict[str, Any]) -> nn.Module:
    # A name with a colon would be code to import, and nothing in a folder may choose that.
    if about["recipe"] is None or ":" in str(about["recipe"]["model"]):
        raise ModelError(
            f"{path} has the weights of a {about['class']} that has no name: load_module(folder, module) needs one"
        )
    return build_description(Recipe, dict(about["recipe"])).make()


def _add(network: nn.Module, added: dict[str, Any]) -> None:
    """What the method added to the module."""
    try:
        method = find_method(str(added["method"]))
        words = flattened(dict(added["parameters"]))
        parameters = Tables(method.Parameters, words).build(words)
    except SubbitError as error:
        raise FrameError("value", f"what the run added to the module cannot be built: {error}") from None
    method.prepare(network, parameters, int(added["classes"]), int(added["key"]))


def _load_pretrained(path: Path, about: dict[str, Any]) -> nn.Module:
    if "classifier" in about:
        classes, pooling = int(about["classifier"]["classes"]), str(about["classifier"]["pooling"])
        network = load_classifier(str(path.absolute()), classes, key=0, pooling=pooling)
        head: Any = network.head
        _fill(head, path / HEAD_FILE)
        return network
    import transformers

    found: Any = getattr(transformers, str(about["class"]), None)
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        raise ModelError(f"{path} is a {about['class']}, which transformers does not have: load it by its own class")
    with quiet(), explained(str(path)):
        loader: Any = found
        model: nn.Module = loader.from_pretrained(path, use_safetensors=True)
    return model


def _load_adapter(path: Path, module: nn.Module | None) -> nn.Module:
    import peft

    network = load_module(path / BASE, module)
    merged: nn.Module = peft.PeftModel.from_pretrained(base_model(network), str(path)).merge_and_unload()
    if base_model(network) is network:
        return merged
    network.backbone = merged
    return network


def _fill(network: nn.Module, path: Path) -> None:
    try:
        network.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"cannot read {path}: {error}") from None
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{path} does not fit {type(network).__name__}: {reason[:200]}") from None

"""A trained network as a folder: `subbit export --module`, and `save` of what `subbit.fine_tune` returns.

subbit.json          what is here, how to load it and, where the module has a name, how to build it
model.safetensors    the weights: of a model of transformers, or the module's state dict
config.json          of a model of transformers; preprocessor_config.json likewise
head.safetensors     the linear head of a classifier, `weight` and `bias`
adapter_*            with `merge=False`: the LoRA for plain peft; the frozen network is in `base/`
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from subbit.core.errors import ConfigError, RunFolderError
from subbit.core.pieces import as_words
from subbit.core.randomness import derive_key
from subbit.export.pretrained import as_pretrained, write_pretrained
from subbit.methods.method import Method
from subbit.methods.names import find_method
from subbit.models.classifier import Classifier
from subbit.models.frozen_weights import widened
from subbit.peft.lora import HEAD_FILE, save_adapter
from subbit.peft.merge_lora import has_lora, without_lora
from subbit.runtime.networks import Network

DESCRIPTION, WEIGHTS, BASE = "subbit.json", "model.safetensors", "base"
FORMAT = 1


@dataclass(frozen=True)
class Saved:
    kind: str
    """`transformers`, `state` or `adapter`."""
    loads: str
    """How to load it, in words."""
    files: dict[str, int]
    """Lengths by name."""


def save_module(network: Network, folder: str | Path, *, merge: bool = True) -> Saved:
    """Write the network to a new folder, whole or not at all. LoRA is merged into the weights, or beside them."""
    path, network = Path(folder), replace(network, module=widened(network.module))
    refuse_taken(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as temporary:
        made = Path(temporary) / "new"
        made.mkdir()
        description = _write(network, made, merge)
        files = {
            each.relative_to(made).as_posix(): each.stat().st_size for each in sorted(made.rglob("*")) if each.is_file()
        }
        os.replace(made, path)
    return Saved(description["kind"], description["loads"].replace("FOLDER", repr(str(path))), files)


def refuse_taken(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if any(path.iterdir()):
            raise RunFolderError(f"{path} is not empty: give a new folder")
    elif os.path.lexists(path):
        raise RunFolderError(f"{path} is there already and is no folder: give a new one")


def _write(network: Network, folder: Path, merge: bool) -> dict[str, Any]:
    module = network.module
    lora = has_lora(module)
    if lora and not merge:
        _write_network(network, without_lora(module, merge=False), folder / BASE, whole=False)
        save_adapter(module, folder)
        loads = (
            "peft.PeftModel.from_pretrained(backbone, FOLDER), where the backbone is in base/ of that folder (its "
            "subbit.json says how to load it); the head is head.safetensors"
        )
        return _describe(network, folder, {"kind": "adapter", "loads": loads})
    if not merge:
        raise ConfigError(f"--no-merge: {type(module).__name__} has no LoRA; train with method=fedpeft tuning=lora")
    plain = without_lora(module, merge=True) if lora else module
    return _write_network(network, plain, folder, whole=not lora)


def _write_network(network: Network, module: nn.Module, folder: Path, *, whole: bool) -> dict[str, Any]:
    """`whole`: nothing of what the method added was taken off."""
    folder.mkdir(exist_ok=True)
    found = as_pretrained(network, module)
    if found is not None:
        write_pretrained(found, module, folder)
        about: dict[str, Any] = {"kind": "transformers", "loads": found.loads, "class": type(found.model).__name__}
        if isinstance(module, Classifier):
            save_file(_tensors(module.head), folder / HEAD_FILE)
            about["classifier"] = {"classes": module.head.out_features, "pooling": module.pooling}
        return _describe(network, folder, about)
    save_file(_tensors(module), folder / WEIGHTS, metadata={"format": "pt"})
    kind = type(module)
    about = {"kind": "state", "class": f"{kind.__module__}.{kind.__qualname__}", "recipe": _recipe(network)}
    about["loads"] = "subbit.load_module(FOLDER)"
    if about["recipe"] is None:
        about["loads"] = f"subbit.load_module(FOLDER, module) with your own {kind.__name__}"
    about["loads"] += f"; or load_state_dict(safetensors.torch.load_file(...)) of a {kind.__name__}, with {WEIGHTS}"
    if whole and _adds(network):
        run = network.settings.run
        about["added"] = {
            "method": run.method,
            "parameters": as_words(network.settings.parameters),
            "classes": network.classes,
            "key": derive_key(run.seed, "added-modules"),
        }
    return _describe(network, folder, about)


def _adds(network: Network) -> bool:
    """Whether the method may add parts to a module."""
    method: Any = find_method(network.settings.run.method)
    prepare: Any = getattr(method, "base", method).prepare
    own: Any = Method.prepare
    return prepare.__func__ is not own.__func__


def _recipe(network: Network) -> dict[str, Any] | None:
    """How to build the module as it was before the run; None if it has no name or its name is code."""
    run = network.settings.run
    if run.model != network.model_name or ":" in run.model or not isinstance(network.some.inputs, Tensor):
        return None
    return {
        "model": run.model,
        "model_key": derive_key(run.seed, "model"),
        "classes": network.classes,
        "input_shape": "x".join(str(side) for side in network.some.tensor.shape[1:]),
        "pretrained": run.pretrained,
        "pooling": run.pooling,
        "revision": run.revision,
    }


def _describe(network: Network, folder: Path, about: dict[str, Any]) -> dict[str, Any]:
    run = network.settings.run
    origin = {"run": run.name, "method": run.method, "network": network.name, "rounds": network.rounds}
    description = {
        "format": FORMAT,
        **about,
        "batchnorm": run.batchnorm,
        "objective": network.objective.name,
        **origin,
        "client": network.client,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return description


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    # Trained tensors are views into one buffer, which safetensors rejects, so they are copied.
    state = module.state_dict()
    return {name: value.detach().clone().contiguous() for name, value in state.items() if isinstance(value, Tensor)}

"""Names of methods. A new method is one file in this folder and one line in `METHOD_MODULES`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from subbit.config.values import nearest
from subbit.errors import ConfigError

if TYPE_CHECKING:
    from subbit.methods.base import Method

METHOD_MODULES = {
    "bnn": "subbit.methods.bnn:Bnn",
    "controlled-flips": "subbit.methods.controlled_flips:ControlledFlips",
    "deepreduce": "subbit.methods.fedpm:DEEPREDUCE",
    "deltamask": "subbit.methods.deltamask:DeltaMask",
    "drive": "subbit.methods.fedavg:DRIVE",
    "eden": "subbit.methods.fedavg:EDEN",
    "edge-popup": "subbit.methods.edge_popup:EdgePopup",
    "fedavg": "subbit.methods.fedavg:FedAvg",
    "fedcode": "subbit.methods.fedcode:FedCode",
    "fedmask": "subbit.methods.fedmask:FedMask",
    "fedpeft": "subbit.methods.fedpeft:FedPeft",
    "fedpm": "subbit.methods.fedpm:FedPM",
    "fedprox": "subbit.methods.fedavg:FEDPROX",
    "gradmask": "subbit.methods.gradmask:GradMask",
    "hidenseek": "subbit.methods.hidenseek:HideNseek",
    "klms": "subbit.methods.fedpm:KLMS",
    "lg-fedavg": "subbit.methods.lg_fedavg:LgFedAvg",
    "moon": "subbit.methods.fedavg:MOON",
    "per-fedavg": "subbit.methods.per_fedavg:PerFedAvg",
    "qsgd": "subbit.methods.fedavg:QSGD",
    "standalone": "subbit.methods.standalone:Standalone",
    "subbit": "subbit.methods.subbit:Subbit",
    "supermask": "subbit.methods.supermask:Supermask",
    "threshold-mask": "subbit.methods.fedpm:THRESHOLD_MASK",
    "topk": "subbit.methods.fedavg:TOPK",
    "zampling": "subbit.methods.zampling:Zampling",
}


def method_names() -> list[str]:
    return sorted(METHOD_MODULES)


def find_method(name: str) -> type[Method[Any]]:
    """The class of that name; imported only now, so that naming methods costs nothing."""
    if name not in METHOD_MODULES:
        raise ConfigError(f"unknown method {name!r}: {nearest(name, method_names())}")
    module, _, attribute = METHOD_MODULES[name].partition(":")
    method: type[Method[Any]] = getattr(import_module(module), attribute)
    return method

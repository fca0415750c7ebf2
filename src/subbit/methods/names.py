"""Names of methods. A new method is one file in this folder and one line in `METHODS`, or a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subbit.core.errors import ConfigError
from subbit.core.registry import Registry, make_registry

if TYPE_CHECKING:
    from subbit.methods.method import Method


def _check(name: str, thing: Any) -> None:
    from subbit.methods.method import Method
    from subbit.methods.variants import Variant

    if not isinstance(thing, Variant) and not (isinstance(thing, type) and issubclass(thing, Method)):
        raise ConfigError(f"method {name!r}: needs a class that extends subbit.methods.method.Method")


METHODS: Registry[type[Method[Any]]] = make_registry(
    "method",
    {
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
        "subbit-masks": "subbit.methods.subbit:SUBBIT_MASKS",
        "sparse-masks": "subbit.methods.sparse_masks:SparseMasks",
        "supermask": "subbit.methods.supermask:Supermask",
        "threshold-mask": "subbit.methods.fedpm:THRESHOLD_MASK",
        "topk": "subbit.methods.fedavg:TOPK",
        "zampling": "subbit.methods.zampling:Zampling",
    },
    _check,
)
"""Imported on first use, so that listing methods is cheap."""


def method_names() -> list[str]:
    return METHODS.names()


def find_method(name: str) -> type[Method[Any]]:
    return METHODS.find(name)

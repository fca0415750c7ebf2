"""subbit on Flower: the same methods, frames and results, on many machines.

    subbit run engine=flower                     Flower's simulation (Ray) on this machine
    flwr run APP                                 a deployment; APP names `subbit.flower:server_app` and `:client_app`

Names are imported on first use, so that a server or client process imports only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["FlowerEngine", "app", "client_app", "compress", "server_app", "simulate"]

_HOMES = {
    "FlowerEngine": "subbit.flower.engine",
    "app": "subbit.flower.own_app",
    "client_app": "subbit.flower.deployment",
    "compress": "subbit.flower.compression",
    "server_app": "subbit.flower.deployment",
    "simulate": "subbit.flower.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

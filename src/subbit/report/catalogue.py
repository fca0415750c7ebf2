"""The output of `subbit list`, as rows of plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from subbit.core.errors import ConfigError
from subbit.core.own_components import own_components
from subbit.core.pieces import is_piece, own_options
from subbit.core.registry import OWNERS, REGISTRIES, first_line, nearest

KINDS = {kind if kind == "privacy" else f"{kind}s": kind for kind in OWNERS}


def catalogue(what: str) -> list[dict[str, Any]]:
    """From the file, if there are no components but our own: that needs neither torch nor numba."""
    if what not in KINDS:
        raise ConfigError(f"unknown list {what!r}: {nearest(what, [*KINDS])}")
    rows = own_components(what)
    return live_catalogue(what) if rows is None else rows


def live_catalogue(what: str) -> list[dict[str, Any]]:
    return CATALOGUES[what]() if what in CATALOGUES else _others(KINDS[what])


def _others(kind: str) -> list[dict[str, Any]]:
    """Registered components: what they are, and their own keys."""
    rows = []
    for name, thing in sorted(REGISTRIES[kind].items()):
        options = ", ".join(own_options(thing)) if is_piece(thing) else ""
        rows.append({"name": name, "what": first_line(thing), "options": options})
    return rows


def _methods() -> list[dict[str, Any]]:
    from subbit.methods.names import find_method, method_names

    return [
        {
            "name": method.name,
            "what": method.title,
            "paper": method.paper,
            "citation": method.citation,
            "up": method.sends_up,
            "down": method.sends_down,
        }
        for method in map(find_method, method_names())
    ]


def _codecs() -> list[dict[str, Any]]:
    from subbit.codecs import registered_codecs

    return [
        {
            "name": codec.name,
            "number": codec.number,
            "payload": codec.kind.value,
            "exact": codec.exact,
            "what": codec.summary,
        }
        for codec in registered_codecs()
    ]


def _models() -> list[dict[str, Any]]:
    from subbit.models import model_names

    return [asdict(model) for model in model_names()]


def _datasets() -> list[dict[str, Any]]:
    from subbit.sets.places import dataset_names

    return [asdict(dataset) for dataset in dataset_names()]


def _partitions() -> list[dict[str, Any]]:
    from subbit.data import PARTITIONS

    return [{"name": name, "what": first_line(divide)} for name, divide in PARTITIONS.items()]


CATALOGUES = {
    "methods": _methods,
    "codecs": _codecs,
    "models": _models,
    "datasets": _datasets,
    "partitions": _partitions,
}

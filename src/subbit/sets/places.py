"""Where named data sets are on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.core.registry import first_line
from subbit.sets.layouts import LAYOUTS, Layout
from subbit.sets.named import NAMED, Named


@dataclass(frozen=True)
class DatasetInfo:
    """One line of `subbit list datasets`."""

    name: str
    what: str
    origin: str
    """Where it comes from and, if it is missing, where to put it."""
    found: bool


def dataset_names() -> list[DatasetInfo]:
    return [_info(name, thing) for name, thing in NAMED.items()]


def _info(name: str, thing: Any) -> DatasetInfo:
    if not isinstance(thing, Named):
        return DatasetInfo(name, first_line(thing), f"plugin {thing.__module__}", True)
    return DatasetInfo(name, thing.what, thing.origin, not thing.layouts or locate(name, thing) is not None)


def named_set(name: str) -> Named | None:
    """One of the built-in data sets, found without loading plugins."""
    thing = NAMED[name] if NAMED.has(name) else None
    return thing if isinstance(thing, Named) else None


def folders(name: str, named: Named) -> list[Path]:
    root = os.environ.get("SUBBIT_DATA")
    system = named.system_folder
    own = [Path(root).expanduser() / name] if root else [Path("$SUBBIT_DATA") / name]
    return [*own, Path("data") / name, *([Path(system)] if system else [])]


def locate(name: str, named: Named) -> tuple[Path, Layout] | None:
    """Look in the folder of the data set and one level below, because most archives unpack into their own folder."""
    layouts = [LAYOUTS[layout] for layout in named.layouts]
    for folder in folders(name, named):
        if not folder.is_dir():
            continue
        for place in (folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())):
            for layout in layouts:
                if layout.fits(place):
                    return place, layout
    return None

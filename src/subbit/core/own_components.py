"""Descriptions of subbit's own components and of their keys, from files: importing the components needs torch or numba.

`python scripts/own_components.py` writes the files, and a test fails if one is out of date. Components of plugins are
not in them.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from subbit.core.plugins import GROUP, loaded_plugins

FILE = Path(__file__).with_suffix(".json")
KEYS = FILE.with_name("own_keys.json")
Rows = list[dict[str, Any]]


def own_components(what: str) -> Rows | None:
    """What `subbit list` shows of our own components of that kind. None where others may have added to them."""
    return None if others_add() else read_own(what)


def read_own(what: str) -> Rows | None:
    known: dict[str, Rows] = json.loads(FILE.read_text(encoding="utf-8"))
    return known.get(what)


def others_add() -> bool:
    """Whether a plugin file was loaded, or a package with plugins is installed."""
    return bool(loaded_plugins() or entry_points(group=GROUP))


def own_keys() -> dict[str, Any]:
    """Keys of the run, of our methods and of what is chosen in them: for pages and for completion in a shell."""
    known: dict[str, Any] = json.loads(KEYS.read_text(encoding="utf-8"))
    return known

"""Write src/subbit/core/own_components.json and own_keys.json: what `subbit list` shows of subbit's own components, and
what a shell completes.

    python scripts/own_components.py

`tests/test_start.py` fails if a file is out of date.
"""

from __future__ import annotations

import json
import sys

from subbit.core.devices import PREFERRED
from subbit.core.own_components import FILE, KEYS, others_add
from subbit.core.registry import REGISTRIES
from subbit.methods.names import METHODS
from subbit.report.catalogue import KINDS, live_catalogue
from subbit.report.explain import live_method
from subbit.report.key_rows import CHOSEN, option_rows, run_rows

MACHINE = "datasets"
"""This list says what is found on a machine, and is made there: it needs no torch."""


def text() -> str:
    rows = {what: live_catalogue(what) for what in sorted(KINDS) if what != MACHINE}
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def keys_text() -> str:
    """A row in a line, so that a change of a key is a change of a line."""
    options = {
        kind: {name: option_rows(REGISTRIES[kind].find(name)) for name in REGISTRIES[kind].names()} for kind in CHOSEN
    }
    names = {
        "method": METHODS.names(),
        "model": [row["name"] for row in live_catalogue("models")],
        "dataset": REGISTRIES["dataset"].names(),
        "device": ["auto", "cpu", *PREFERRED],
    }
    methods = {name: live_method(name) for name in METHODS.names()}
    found = {"names": names, "run": run_rows(), "methods": methods, "options": options}
    rows: list[str] = []

    def marked(value: object) -> object:
        if isinstance(value, dict) and "key" not in value:
            return {name: marked(inner) for name, inner in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return [marked(inner) for inner in value]
        rows.append(json.dumps(value, ensure_ascii=False))
        return f"@{len(rows) - 1}@"

    whole = json.dumps(marked(found), indent=1)
    for number, row in enumerate(rows):
        whole = whole.replace(f'"@{number}@"', row, 1)
    return whole + "\n"


if __name__ == "__main__":
    if others_add():
        sys.exit("a package with plugins of subbit is installed: its components must not be among ours")
    FILE.write_text(text(), encoding="utf-8")
    KEYS.write_text(keys_text(), encoding="utf-8")

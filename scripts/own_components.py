"""Write src/subbit/core/own_components.json: what `subbit list` shows of subbit's own components.

    python scripts/own_components.py

`tests/test_start.py` fails if the file is out of date.
"""

from __future__ import annotations

import json
import sys

from subbit.core.own_components import FILE, others_add
from subbit.report.catalogue import KINDS, live_catalogue

MACHINE = "datasets"
"""This list says what is found on a machine, and is made there: it needs no torch."""


def text() -> str:
    rows = {what: live_catalogue(what) for what in sorted(KINDS) if what != MACHINE}
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if others_add():
        sys.exit("a package with plugins of subbit is installed: its components must not be among ours")
    FILE.write_text(text(), encoding="utf-8")

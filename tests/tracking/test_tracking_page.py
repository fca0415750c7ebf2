"""docs/tracking.md: its own tracker runs as it is told there, and what it lists is what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from subbit.tracking.tracker import TRACKERS

PAGE = (Path(__file__).parents[2] / "docs" / "tracking.md").read_text()
SMALL = ["method=fedavg", "model=mlp-small", "head=kaiming", "rounds=2", "clients=2", "limit=60", "test_limit=20"]


def test_the_tracker_of_the_page(tmp_path: Path) -> None:
    ((name, text),) = re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / name).write_text(text)
    (word,) = re.findall(r"`subbit run (track=[^`]+)`", PAGE)
    done = subprocess.run(
        [sys.executable, "-m", "subbit", "run", *SMALL, word], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "fedavg-1.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "finished"]
    assert lines[-1].split()[1] == lines[-2].split()[1]


def test_the_page_has_every_tracker() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `subbit\[(\w+)\]` \|", PAGE, re.MULTILINE)
    ours = {name for name, thing in TRACKERS.items() if thing.__module__.startswith("subbit.")}
    assert {name for name, _ in rows} == {extra for _, extra in rows} == ours

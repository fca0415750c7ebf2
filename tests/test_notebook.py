"""examples/first_steps.ipynb runs from top to bottom in one process, and what it says about its numbers is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
CHECKED = """
assert result.score > head.score > result.score_before, (result.score, head.score, result.score_before)
assert result.uplink_bpp < 1 and result.downlink_bpp < 1
assert result.total_bytes < head.total_bytes < everything.total_bytes
assert abs((predicted == labels[held_out]).double().mean().item() - result.score) < 1e-9
assert same
"""


def test_it_runs_and_its_claims_hold(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text("\n\n".join([*CODE, CHECKED]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("accuracy") >= 5
    assert [path.name for path in tmp_path.iterdir()] == ["cells.py"]


def test_it_is_committed_without_outputs() -> None:
    """They would hold the paths and times of some machine, and change with every look."""
    for cell in CELLS:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("link", re.findall(r"\]\((\.\./[^)#]+)", json.dumps(CELLS)))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (NOTEBOOK.parent / link).is_file()

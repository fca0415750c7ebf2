"""examples/own_*.py are run as a reader would run them; each asserts what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("own_*.py"))
LONGEST = 40


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_does_what_it_says(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= LONGEST
    assert f"`python examples/{path.name}`" in lines[0]


def test_there_is_one_for_each_kind() -> None:
    assert {path.stem for path in EXAMPLES} == {
        "own_files", "own_labels", "own_language", "own_loss", "own_tests", "own_unet",
    }  # fmt: skip

"""docs/extending.md is run: its files keep the laws, its other snippets do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def subbit(*words: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "subbit", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FILES)
def test_every_file_keeps_the_laws(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name])
    printed = subbit("check", name, folder=tmp_path)
    assert printed.splitlines()[-1].endswith("laws hold, 0 do not")


def test_the_first_snippet_is_a_partition(tmp_path: Path) -> None:
    snippet = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "turns.py").write_text(snippet)
    words = ["model=mlp", "head=keep", "limit=60", "test_limit=20", "rounds=1", "clients=2", "partition=by-turns"]
    assert "30 / 30 / 30 examples" in subbit("run", "--plugin", "turns.py", *words, folder=tmp_path)


def test_the_commands_run(tmp_path: Path) -> None:
    """As they stand, on a smaller job; `check` has a test of its own."""
    commands = [
        line.split()[1:] for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    (tmp_path / "my_method.py").write_text(FILES["my_method.py"])
    small = ["model=mlp", "head=keep", "limit=60", "test_limit=20", "rounds=1"]
    for words in commands:
        if words[0] != "check":
            subbit(*words, *(small if words[0] != "resume" else []), folder=tmp_path)
    assert {words[0] for words in commands} == {"check", "run", "compare", "flower", "resume"}
    assert (tmp_path / "my-app" / "plugins" / "my_method.py").read_text() == FILES["my_method.py"]


def test_the_lines_that_use_a_file_run(tmp_path: Path) -> None:
    """`subbit run ...` in the text, on a smaller job."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    lines = re.findall(r"`subbit (run --plugin [^`]+)`", PAGE)
    assert {name for name in FILES if any(name in line for line in lines)} == {
        "my_aggregator.py", "my_optimizer.py", "my_model.py", "my_data.py",
    }  # fmt: skip
    for number, line in enumerate(lines):
        own = ["limit=60", "test_limit=20", "rounds=1", "clients=2", "head=keep", f"name=run{number}"]
        words = line.split()
        subbit(*words, *own, *([] if "model=" in line else ["model=mlp"]), folder=tmp_path)


def test_the_page_is_what_a_reader_can_use() -> None:
    assert max(map(len, PAGE.splitlines())) <= 120
    (entry,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert tomllib.loads(entry)["project"]["entry-points"] == {"subbit.plugins": {"my-methods": "my_package.methods"}}

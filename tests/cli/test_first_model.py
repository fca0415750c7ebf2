"""docs/first-model.md is run as it stands, and prints what the page says, but for numbers."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from subbit.cli.entry import app

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "first_model.py"))
PAGE = SCRIPT["PAGE"].read_text()


def run_here(command: str) -> str:
    words = command.split()
    assert words[0] == "subbit"
    fewer = ["rounds=1"] if words[1] == "run" else []
    done = CliRunner().invoke(app, [*words[1:], *fewer], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_of_the_page_print_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SCRIPT["write_pictures"](tmp_path)
    monkeypatch.chdir(tmp_path)
    found = dict(SCRIPT["shapes"](SCRIPT["replayed"](PAGE, run_here)))
    wanted = dict(SCRIPT["shapes"](PAGE))
    assert [command.split()[1] for command in wanted] == ["doctor", "init", "run", "predict", "export"]
    for command, lines in wanted.items():
        assert found[command] == lines, f"{command}: run python scripts/first_model.py"
    assert "photo.png,seven," in PAGE, "what the picture shows"


def test_from_pictures_to_a_prediction_are_six_commands_at_most() -> None:
    assert PAGE.count("```console\n$ ") + PAGE.count("```bash\n") <= 6

"""What a user sees while a command runs: the first line soon, never long silence, results apart from progress."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from tests.cli.shell import QUICK, here, in_terminal, subbit

COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9](;[0-9;]*)?m")
SOON, SILENT = 3.0, 6.0
"""Seconds, generous: other tests run beside this one. On a quiet machine the first line takes 0.3 s."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, runs/a."""
    folder = tmp_path_factory.mktemp("terminal")
    printed = subbit("run", *QUICK, "name=a", folder=folder)
    (folder / "stdout").write_text(printed.stdout)
    (folder / "stderr").write_text(printed.stderr)
    return folder


def test_a_terminal_sees_the_first_line_soon_then_progress_and_how_to_go_on(tmp_path: Path) -> None:
    status, written = in_terminal("run", *QUICK, "name=b", "rounds=60", "method=fedavg", folder=tmp_path)
    text = b"".join(data for _, data in written).decode()
    assert status == 0, text
    assert "loading PyTorch" in written[0][1].decode()
    assert written[0][0] < SOON
    times = [0.0, *(when for when, _ in written)]
    assert max(after - before for before, after in itertools.pairwise(times)) < SILENT
    assert re.search(r"accuracy \d\.\d{4}, \d+\.\d+ MB of about \d+\.\d+ MB, about \d+:\d\d left", text)
    assert re.search(r"b, round 60 of 60: accuracy \d\.\d{4}", text)
    assert "\x1b[2K" in text, "lines are written over"
    assert text.rstrip().endswith("subbit export runs/b --module b-model")


def test_a_pipe_gets_plain_lines_few_of_them_and_results_apart_from_progress(run: Path) -> None:
    stdout, stderr = (run / "stdout").read_text(), (run / "stderr").read_text()
    assert "\x1b" not in stdout + stderr
    assert "\r" not in stdout + stderr
    lines = stderr.splitlines()
    assert lines[0] == "deltamask on mlp, digits: loading PyTorch"
    assert any(line.startswith("a, round 3 of 3: accuracy") for line in lines)
    assert len(lines) < 25
    assert "accuracy, expected network" in stdout
    assert stdout.splitlines()[-3:] == [
        "next: subbit show runs/a",
        "      subbit predict runs/a test   # or an image, a folder, a file instead of test",
        "      subbit export runs/a --module a-model",
    ]


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_colours_and_control_characters_can_be_turned_off(variables: dict[str, str], run: Path) -> None:
    coloured = b"".join(data for _, data in in_terminal("show", "--help", folder=run)[1])
    assert COLOUR.search(coloured), "without the variable there are colours"
    for words in (["show", "--help"], ["list", "methods"], ["show", "runs/a"]):
        text = b"".join(data for _, data in in_terminal(*words, folder=run, **variables)[1])
        assert not COLOUR.search(text)
        assert "TERM" not in variables or b"\x1b" not in text


def test_quiet_is_one_line_and_json_is_the_summary(run: Path) -> None:
    summary = json.loads((run / "runs/a/summary.json").read_text())
    shown = here("show", "runs/a", "--json", folder=run)
    assert json.loads(shown.stdout) == summary
    (line,) = here("show", "runs/a", "--quiet", folder=run).stdout.splitlines()
    assert line.startswith(f"runs/a: accuracy {summary['accuracy']:.4f}, up {summary['uplink_bpp']:.4f}")
    done = subbit("run", *QUICK, "name=c", "rounds=1", "--quiet", folder=run)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    done = here("resume", "runs/a", "--json", "--quiet", folder=run)
    assert json.loads(done.stdout) == summary
    assert done.stderr == ""


def test_a_check_and_a_comparison_have_quiet_and_json_too(run: Path) -> None:
    done = here("check", "runs/a", "--json", "--quiet", folder=run)
    found = json.loads(done.stdout)
    assert found["damaged"] == []
    assert found["checked"] > 5
    assert done.stderr == ""
    words = ["compare", "fedavg", "topk", *QUICK, "rounds=1", "folder=elsewhere"]
    done = here(*words, "--quiet", folder=run)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["fedavg", "topk"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["list", "nothing"], 2),
        (["run", "--nothing"], 2),
        (["run", "dataset=nowhere.npz"], 3),
        (["show", "nowhere"], 6),
        (["inspect", "rubbish"], 7),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes_are_those_of_the_page(words: list[str], status: int, tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_bytes(b"rubbish")
    done = here(*words, folder=tmp_path, status=status)
    assert "Traceback" not in done.stderr
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    assert re.search(rf"^\| {status} \|", page, re.MULTILINE)


def test_the_version_has_a_short_option(tmp_path: Path) -> None:
    assert here("-V", folder=tmp_path).stdout == here("--version", folder=tmp_path).stdout

"""`subbit init`: what it writes runs at once, what cannot be learnt from is refused, no file is lost."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from subbit.cli.entry import app
from subbit.cli.running import build_and_try
from subbit.config.resolve import read_toml, resolve
from subbit.core.errors import ConfigError, DataError, RunFolderError
from subbit.runtime.run import run_job
from tests.cli.shell import COMMAND


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of every kind, with names that are not tame."""
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for name in ("cat", 'dog [b] "x"'):
        (folder / "scans" / name).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 255, (30 + number, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "scans" / name / f"{number}.png")
    (folder / "one" / "cat").mkdir(parents=True)
    for place in (folder / "flat.png", folder / "one" / "cat" / "a.png"):
        Image.fromarray(generator.integers(0, 255, (8, 8), dtype=np.uint8)).save(place)
    tables = {
        "houses": [["size & m", "rooms", "price"], *([n % 7, n % 5, 3.5 * (n % 7) + 0.25] for n in range(60))],
        "flowers": [["a", "b", "species", "user"], *([n % 7, n % 5, "xyz"[n % 3], f"u{n % 4}"] for n in range(80))],
        "numbers": [["a", "b"], [1, 2], [3, 4]],
        "same": [["a", "label"], [1, "x"], [2, "x"]],
        "hole": [["a", "label"], [1, "x"], [2, ""]],
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    labelled = [{"text": f"some words {n}", "label": "ab"[n % 2]} for n in range(40)]
    (folder / "news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labelled))
    plain = [{"text": f"words to go on with, number {n}. " * 9} for n in range(40)]
    (folder / "plays.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    (folder / "broken.jsonl").write_text('{"text": "a", "label": 1}\n[not an object\n')
    return folder


def init(data: Path, *words: str) -> Result:
    before = Path.cwd()
    os.chdir(data)
    try:
        return CliRunner().invoke(app, ["init", *words], env={"COLUMNS": "80"})
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("source", "goal", "more", "method"),
    [
        ("scans", "bytes", [], "subbit"),
        ("scans", "personal", ["--split", "skewed"], "lg-fedavg"),
        ("digits", "score", ["--clients", "3"], "fedavg"),
        ("houses.csv", "bytes", [], "fedavg"),
        ("flowers.csv", "personal", [], "fedmask"),
        ("flowers.csv", "bytes", ["--split", "skewed"], "fedavg"),
        ("news.jsonl", "score", [], "fedavg"),
        ("plays.jsonl", "bytes", [], "subbit"),
    ],
)
def test_what_is_written_runs_at_once(
    source: str, goal: str, more: list[str], method: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my job.toml"
    done = init(data, str(file), "--data", source, "--goal", goal, "--yes", *more)
    assert done.exit_code == 0, done.output
    assert f"next: subbit run '{file}'" in done.stdout
    assert file.read_text().count("# ") >= 5
    monkeypatch.chdir(data)
    fewer = ["limit=40", "test_limit=20"] if source == "digits" else []
    settings = resolve(read_toml(file), ["rounds=1", *fewer])
    assert settings.run.method == method
    assert run_job(build_and_try(settings), settings).summary["rounds"] == 1


@pytest.mark.parametrize("goal", ["bytes", "score", "personal"])
def test_no_proposal_spoils_the_network_that_it_starts_from(goal: str, data: Path, tmp_path: Path) -> None:
    """Without the guard, all weights end 4 points below the head alone, and own ones 10."""
    file = tmp_path / "job.toml"
    assert init(data, str(file), "--data", "digits", "--goal", goal, "--yes").exit_code == 0
    few = ["clients=4", "rounds=3", "limit=160", "test_limit=200", "evaluate_every=3"]
    settings = resolve(read_toml(file), few)
    summary = run_job(build_and_try(settings), settings).summary
    assert summary["score_before"] > 0.6
    assert summary["score"] >= summary["score_before"] - 0.01


def test_a_network_of_ones_own_and_one_of_the_hub_are_named(data: Path, tmp_path: Path) -> None:
    for model in ("my_package.my_module:build", "openai/clip-vit-base-patch32"):
        file = tmp_path / f"{len(model)}.toml"
        assert init(data, str(file), "--data", "scans", "--model", model, "--yes").exit_code == 0
        assert resolve(read_toml(file)).run.model == model


def test_what_was_found_is_said_as_one_would(data: Path, tmp_path: Path) -> None:
    assert (
        "24 images of 2 classes, 12 of each" in init(data, str(tmp_path / "a.toml"), "--data", "scans", "--yes").output
    )


def test_real_nodes_get_the_form_of_their_inputs(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    done = init(data, str(file), "--data", "scans", "--nodes", "--clients", "4", "--yes")
    assert "next: subbit flower app" in done.stdout
    values = tomllib.loads(file.read_text())
    assert values["dataset"] == "own"
    assert values["input"] == "uint8 3x32x32"
    assert values["classes"] == 2
    assert resolve(values).run.clients == 4


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--data", "."], DataError, "without labels"),
        (["--data", "one"], DataError, "one class, 'cat'"),
        (["--data", "nowhere"], DataError, "no such file"),
        (["--data", "numbers.csv"], DataError, "give --label COLUMN"),
        (["--data", "numbers.csv", "--label", "c"], DataError, "the columns are a, b"),
        (["--data", "same.csv"], DataError, "need two classes"),
        (["--data", "hole.csv"], DataError, "row 2: the label label is empty"),
        (["--data", "broken.jsonl"], DataError, "cannot be read as a table"),
        (["--data", "cars196"], DataError, "is not on this machine: put it into"),
        (["--data", "flowers.csv", "--clients", "70"], ConfigError, "give at most 40"),
        (["--data", "scans", "--split", "natural"], ConfigError, "no owners"),
        (["--data", "scans", "--goal", "byte"], ConfigError, "did you mean 'bytes'?"),
        (["--data", "houses.csv", "--goal", "personal"], ConfigError, "a column owner"),
        (["--data", "digits", "--nodes"], ConfigError, "docs/own-nodes.md"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_work_is_refused_and_nothing_is_written(
    words: list[str], error: type[Exception], said: str, data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    done = init(data, str(file), "--yes", *words)
    assert isinstance(done.exception, error)
    assert said in str(done.exception)
    assert not file.exists()


def test_a_file_is_never_written_over_without_force(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("mine")
    assert isinstance(init(data, str(file), "--yes").exception, RunFolderError)
    assert file.read_text() == "mine"
    assert init(data, str(file), "--yes", "--force").exit_code == 0
    assert "mine" not in file.read_text()


def test_with_nobody_to_ask_it_says_what_to_give(data: Path, tmp_path: Path) -> None:
    done = init(data, str(tmp_path / "job.toml"))
    assert isinstance(done.exception, ConfigError)
    assert "--yes" in str(done.exception)


def test_four_questions_are_asked_in_a_terminal(data: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "init", str(tmp_path / "asked.toml")]
    with subprocess.Popen(command, cwd=data, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, b"flowers.csv\n\nn\neven\n5\nscore\n")
        text = b""
        while True:
            try:
                text += os.read(ours, 1 << 16)
            except OSError:
                break
    os.close(ours)
    assert process.returncode == 0, text.decode()
    values = tomllib.loads((tmp_path / "asked.toml").read_text())
    assert values["clients"] == 5
    assert values["dataset"].startswith("flowers.csv?label=species")

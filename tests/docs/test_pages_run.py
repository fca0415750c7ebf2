"""Commands and Python snippets of the first pages run as they stand; of the other pages, commands and options exist.

A block that cannot run here says why, in a comment above it: `<!-- not run: needs your data -->`.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from subbit.cli.entry import app
from subbit.config.resolve import read_toml, resolve

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]+) -->\n)?```(?P<language>bash|python)\n(?P<text>.*?)```", re.DOTALL)
RUN = ("index.md", "start.md", "how-it-works.md", "robustness.md", "own-models.md", "objectives.md")
"""Run here, from top to bottom. `<!-- file: NAME -->` above a block makes it a file."""
TESTED = {
    "extending.md": "tests/test_extending.py",
    "first-model.md": "tests/cli/test_first_model.py",
    "tracking.md": "tests/tracking/test_tracking_page.py",
    "using-results.md": "tests/export/test_using_results.py",
}
"""Run by tests of their own."""
OTHERS = sorted(path for path in [*DOCS.rglob("*.md"), ROOT / "README.md"] if path.name not in RUN)


def lines(block: str) -> list[list[str]]:
    """The commands of a block as words, without comments."""
    return [words for line in block.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", RUN)
def test_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for block in BLOCK.finditer((DOCS / page).read_text()):
        mark = block["mark"] or ""
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(block["text"])
        elif mark.startswith("not run: "):
            continue
        elif block["language"] == "bash":
            for words in lines(block["text"]):
                assert words[0] == "subbit", f"{page}: {words}; say why it is not run"
                app(words[1:], standalone_mode=False)
        else:
            capsys.readouterr()
            exec(block["text"], {"__name__": "__main__"})
            assert capsys.readouterr().out, "a snippet shows something"
    if page == "start.md":
        told = json.loads((ROOT / "benchmarks" / "results" / "one-round.json").read_text())
        found = json.loads((tmp_path / "runs" / "first" / "summary.json").read_text())
        # Another processor may round differently.
        assert found["score"] == pytest.approx(told["score"], abs=0.03)
        assert found["total_bytes"] == pytest.approx(told["total_bytes"], rel=0.05)
        assert (tmp_path / "runs" / "first" / "report.html").is_file()


def test_every_block_runs_somewhere_or_says_why_not() -> None:
    for page, test in TESTED.items():
        assert page in (ROOT / test).read_text()
    silent = []
    for path in DOCS.glob("*.md"):
        for block in BLOCK.finditer(path.read_text()):
            if path.name not in RUN and path.name not in TESTED and not (block["mark"] or "").startswith("not run: "):
                silent.append((path.name, block["text"][:60]))
            for name in re.findall(r"tests/[\w/]+(?:\.py)?", block["mark"] or ""):
                assert (ROOT / name).exists(), name
    assert not silent


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(path: Path) -> None:
    commands = typer.main.get_command(app)
    for block in re.findall(r"```(?:bash|text)?\n(.*?)```", path.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\.venv/bin/)?subbit ([a-z].*)", line)
            if found:
                words = shlex.split(found[1], comments=True)
                check(commands, words, line)
                check_keys(words, line)


def check(command: Any, words: list[str], line: str) -> None:
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, line
        command, words = command.commands[words[0]], words[1:]
    if command.context_settings.get("ignore_unknown_options"):
        return  # `subbit bench` hands its words on.
    known = {"--help"} | {name for each in command.params for name in [*each.opts, *each.secondary_opts]}
    assert not [word for word in words if word.startswith("--") and word.partition("=")[0] not in known], line


def check_keys(words: list[str], line: str) -> None:
    """The keys of a run exist, and its values can be; its data need not be there."""
    if words[0] != "run" or "--plugin" in words or any("..." in word for word in words):
        return
    words = [word for word in words[1:] if not word.startswith("-")]
    values: dict[str, Any] = {}
    if words and "=" not in words[0]:
        if words[0] != "FILE.toml" and not (ROOT / words[0]).is_file():
            return  # The reader's own file.
        values, words = read_toml(ROOT / words[0]), words[1:]
    resolve(values | dict(word.split("=", 1) for word in words))


@pytest.mark.parametrize("path", sorted((DOCS / "methods").glob("*.md")), ids=lambda path: path.stem)
def test_the_example_of_a_method_is_a_valid_job(path: Path) -> None:
    for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL):
        for words in lines(block):
            assert words[:2] == ["subbit", "run"]
            resolved = resolve(dict(word.split("=", 1) for word in words[2:]))
            assert resolved.run.method == path.stem

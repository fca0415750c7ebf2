"""The README is run: its Python as it stands, its commands as far as they name files and options that exist."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("snippet", blocks("python"))
def test_every_python_snippet_runs(snippet: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "bits per parameter" in done.stdout


def test_every_command_exists() -> None:
    commands = [line.split("#")[0].split() for block in blocks("bash") for line in block.splitlines() if line.strip()]
    targets = (ROOT / "Makefile").read_text()
    for words in commands:
        if words[0] == "make":
            assert f"\n{words[1]}:" in targets
        else:
            assert words[0] == ".venv/bin/subbit"
            listed = subprocess.run(
                [sys.executable, "-m", "subbit", words[1], "--help"], capture_output=True, text=True, check=True
            )
            for word in words[2:]:
                if word.endswith(".toml"):
                    assert (ROOT / word).is_file()
                if word.startswith("--"):
                    assert word in listed.stdout


def test_every_relative_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_tables_of_comparisons_are_what_the_committed_files_say() -> None:
    namespace = runpy.run_path(str(ROOT / "benchmarks" / "render_comparisons.py"))
    assert namespace["pages"]()
    for page in namespace["pages"]():
        assert namespace["rendered_page"](page.read_text()) == page.read_text(), "run benchmarks/render_comparisons.py"


def test_plots_of_comparisons_are_what_the_committed_files_say() -> None:
    namespace = runpy.run_path(str(ROOT / "benchmarks" / "render_comparisons.py"))
    for path, plot in namespace["plots"]().items():
        assert path.read_text() == plot, "run benchmarks/render_comparisons.py"


HEAD_ALONE = json.loads((ROOT / "benchmarks" / "results" / "head-alone.json").read_text())
FROM_SCRATCH = {"fedmask-digits-2class"}
"""No pre-trained features, so there is nothing to fit a head on."""


def test_every_table_of_accuracies_says_what_the_head_alone_reaches() -> None:
    shown = set()
    for page in (ROOT / "docs").glob("*.md"):
        for name, table in re.findall(
            r"<!-- comparison: (\S+) -->\n(.*?)<!-- /comparison", page.read_text(), re.DOTALL
        ):
            shown.add(name)
            assert (name in FROM_SCRATCH) != ("| `head=lda` alone, no training |" in table), name
            assert (name in FROM_SCRATCH) != ("does not rank the methods" in table), name
    assert shown == (set(HEAD_ALONE) | FROM_SCRATCH) - {name for name in HEAD_ALONE if name.startswith("gradmask")}
    page = (ROOT / "docs" / "gradient-masks.md").read_text()
    assert "does not rank the methods" in page
    assert "| `head=lda` alone, no training" in page


def test_the_head_alone_has_the_seeds_of_its_table() -> None:
    jobs = runpy.run_path(str(ROOT / "benchmarks" / "head_alone.py"))
    assert set(HEAD_ALONE) == set(jobs["JOBS"])
    for name, found in HEAD_ALONE.items():
        assert [run["seed"] for run in found["runs"]] == list(range(jobs["seeds_of"](name))), name


def test_the_sentence_counts_the_rows_that_the_head_alone_reaches() -> None:
    """0.75 is above 0.7 and level with 0.755 (half a point), not with 0.77; 0.5 is above 0.4: three of four."""
    said = runpy.run_path(str(ROOT / "benchmarks" / "head_row.py"))["sentence"](
        [0.75, 0.5], [[0.7, 0.755, 0.77], [0.4]]
    )
    assert "has accuracy 0.750, 0.500 on this job: above or level with 3 of the 4 trained results" in said


@pytest.mark.parametrize("page", ["deltamask", "flagship", "flower", "subbit-masks", "zampling"])
def test_the_tables_of_a_page_are_what_the_committed_files_say(page: str) -> None:
    namespace = runpy.run_path(str(ROOT / "benchmarks" / f"render_{page}.py".replace("-", "_")))
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert namespace["rendered_page"](text) == text, f"run benchmarks/render_{page}.py"

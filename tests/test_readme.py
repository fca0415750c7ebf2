"""The README is run: its Python as it stands, its commands as far as they name files and options that exist."""

from __future__ import annotations

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


FROM_SCRATCH = {"fedmask-digits-2class"}
"""No pre-trained features, so there is no head to fit on them."""


def test_methods_on_pre_trained_networks_are_compared_in_the_arena_alone() -> None:
    """Elsewhere nothing says what a head in closed form reaches without training, nor what the ceiling is."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"<!-- comparison: (\S+) -->", page.read_text())}
    assert shown == FROM_SCRATCH


@pytest.mark.parametrize("page", ["deltamask", "flagship", "flower", "sparse-masks", "subbit-masks", "zampling"])
def test_the_tables_of_a_page_are_what_the_committed_files_say(page: str) -> None:
    namespace = runpy.run_path(str(ROOT / "benchmarks" / f"render_{page}.py".replace("-", "_")))
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert namespace["rendered_page"](text) == text, f"run benchmarks/render_{page}.py"


def test_the_table_of_default_rates_is_what_the_committed_file_says() -> None:
    namespace = runpy.run_path(str(ROOT / "benchmarks" / "render_default_rates.py"))
    text = namespace["PAGE"].read_text()
    assert namespace["rendered_page"](text) == text, "run benchmarks/render_default_rates.py"

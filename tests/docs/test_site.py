"""The site: links out of docs/, navigation, equations; and all of it built, where `make site` has installed mkdocs."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import subbit

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "scripts" / "site_pages.py"))
HOME = "https://example.org/subbit"
SITE_PYTHON = ROOT / ".site" / "venv" / "bin" / "python"


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("[a](../examples/own_loss.py)", "x.md", f"[a]({HOME}/blob/main/examples/own_loss.py)"),
        ("[a](../../src/x.py#L3)", "methods/x.md", f"[a]({HOME}/blob/main/src/x.py#L3)"),
        ("[a](../SECURITY.md#robust)", "x.md", "[a](security.md#robust)"),
        ("[a](../../CHANGELOG.md)", "methods/x.md", "[a](../changelog.md)"),
        ("[a](docs/own.md#part)", "contributing.md", "[a](own.md#part)"),
        ("[a](other.md), [b](#here), [c](https://x.org/y)", "x.md", "[a](other.md), [b](#here), [c](https://x.org/y)"),
        ("![a](images/a.png)", "x.md", "![a](images/a.png)"),
        ("```text\n[a](../src/x.py)\n```\n", "x.md", "```text\n[a](../src/x.py)\n```\n"),
    ],
)
def test_links(text: str, page: str, expected: str) -> None:
    assert PAGES["linked"](text, page, HOME) == expected


def test_a_link_out_of_docs_is_text_where_there_is_no_repository() -> None:
    assert PAGES["linked"]("see [own_loss.py](../examples/own_loss.py).", "x.md", None) == "see own_loss.py."


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r"^ +- .*?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*there, *PAGES["ROOT_PAGES"].values()])


def test_every_relative_link_leads_to_a_file() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_reference_has_all_that_the_package_offers() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in subbit.__all__ if name != "__version__" and f"\n::: subbit.{name}\n" not in page] == []


def test_equations_are_blocks_of_their_own() -> None:
    """Others would be shown as they are written."""
    for path in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        assert "$$" not in PAGES["EQUATION"].sub("", text), path.name


class Loaded(HTMLParser):
    """What a browser would load for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        loads = values.get("src") if tag in ("script", "img", "iframe", "source") else None
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next", "alternate"):
            loads = values.get("href")
        if loads:
            self.found.append(loads)


@pytest.mark.skipif(not SITE_PYTHON.exists(), reason="no mkdocs: make site installs it")
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere() -> None:
    # Targets of the environment are not made again here: a test installs nothing.
    words = ["make", "--silent", "-o", ".site/venv/.ready", "site"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted((ROOT / "site").rglob("*.html"))
    assert len(built) > len([*(ROOT / "docs").rglob("*.md")])
    for path in built:
        page: Any = Loaded()
        text = path.read_text()
        page.feed(text)
        assert not [url for url in page.found if re.match(r"(?:https?:)?//", url)], path.name
        assert "$$" not in re.sub(r"<(pre|code|script).*?</\1>", "", text, flags=re.DOTALL), path.name
    for path in (ROOT / "site").rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", path.read_text()), path.name
    assert "<math" in (ROOT / "site" / "methods" / "deltamask.html").read_text()

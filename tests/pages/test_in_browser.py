"""Reports in a real browser: Debian's chromium, driven by playwright, with the checks of axe-core.

`make browser` gets all three and runs this. Without one of them these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subbit.pages.write_report import write_report
from tests.pages.hand_made import CHANGE, HOSTILE, MASK, SPLIT, event, make_run, summary
from tests.pages.test_comparison_page import compared

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make browser installs it")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
AXE = Path(os.environ.get("AXE", Path(__file__).parents[2] / ".browser" / "package" / "axe.min.js"))
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: make browser installs it"),
    pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: make browser gets it"),
]
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield found
        found.close()


def _failing() -> list[dict[str, Any]]:
    return [{"client": 1, "cause": "deadline", "message": "no answer in 600 s, " * 20}]


def _make(kind: str, folder: Path) -> Path:
    if kind == "comparison":
        labels = ["head-alone", "central", "fedavg", "a-long-name:" + "learning_rate=0.001," * 4, HOSTILE]
        scores = {label: 0.5 + place / 10 for place, label in enumerate(labels)}
        compared(
            folder, {label: [summary(score=score, seed=seed) for seed in (0, 1)] for label, score in scores.items()}
        )
        return folder / "report.html"
    privacy = {"guarantee": "(1, 1e-05)-DP for each example", "epsilon": 1.0, "delta": 1e-5}
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "masks": (summary(), {"split": SPLIT, "layers": MASK}),
        "hostile": (
            summary(name=HOSTILE, method=HOSTILE, score_name=HOSTILE, scores={HOSTILE: 1.0}),
            {"part": "<b>x</b>"},
        ),
        "unfinished": (None, {}),
        "failures": (summary(warnings=[{"what": "too large a step", "key": "server_rate"}]), {"split": SPLIT}),
        "personal": (summary(score_by_client={"0": 0.5, "1": 0.75}, privacy=privacy), {"layers": CHANGE}),
    }
    found, others = runs[kind]
    events = [event(number, 0.2 + number / 50, _failing() if number % 7 == 1 else None) for number in range(40)]
    if kind in ("hostile", "masks", "personal"):
        events = events[:3]
    return write_report(make_run(folder / "a", found, events, **others))


@pytest.mark.parametrize("kind", ["masks", "hostile", "unfinished", "failures", "personal", "comparison"])
def test_a_report_in_a_browser(kind: str, browser: Any, tmp_path: Path) -> None:
    path = _make(kind, tmp_path)
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page, said, asked = context.new_page(), [], []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.on("dialog", lambda dialog, said=said: said.append(dialog.message))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            _look_at(page, scheme)
            assert said == []
            assert asked == [path.as_uri()]
            context.close()


def _look_at(page: Any, scheme: str) -> None:
    areas = page.locator(".plot-area")
    for number in range(areas.count()):
        drawn = areas.nth(number).locator(".scatterlayer .point, .barlayer .point")
        drawn.first.wait_for(state="attached", timeout=10_000)
        assert drawn.count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself scrolls sideways"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == scheme
    # What is inside is measured too: closed details would hide it.
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it does with all details open"
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run()")["violations"]
    grave = [each for each in violations if each["impact"] in ("serious", "critical")]
    assert not grave, [(each["id"], each["nodes"][0]["html"]) for each in grave]


def test_the_buttons_switch_colours_and_hide_lines(browser: Any, tmp_path: Path) -> None:
    path = _make("comparison", tmp_path)
    page = browser.new_page(color_scheme="light")
    page.goto(path.as_uri())
    back = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(back)
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate(back) != before
    assert page.get_by_role("button", name="Light colours").is_visible()
    figure = page.locator("figure").first
    shown = figure.locator(".scatterlayer .trace").count()
    button = figure.get_by_role("button", name="fedavg")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert figure.locator(".scatterlayer .trace").count() == shown - 1
    page.close()


def test_the_keyboard_reaches_the_content_first(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(_make("masks", tmp_path).as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.close()


def test_without_scripts_the_numbers_are_there(browser: Any, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(_make("masks", tmp_path).as_uri())
    details = page.locator("figure details").first
    details.locator("summary").click()
    assert details.locator("td").first.is_visible()
    context.close()

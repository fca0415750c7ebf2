"""The board in a real browser (Debian's chromium), while a real run goes on and loses a worker.

    apt-get install chromium; pip install playwright; npm install axe-core (or AXE=path/of/axe.min.js)

SHOTS=folder keeps the screenshots.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.board.made_runs import asked, make_run, replied, round_line
from tests.board.test_board_server import board, started
from tests.processes import alive, below

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or ""
if not CHROMIUM:
    pytest.skip("needs a browser: apt-get install chromium", allow_module_level=True)
QUIET = ("background-networking", "component-update", "sync", "gpu")
ARGUMENTS = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{what}" for what in QUIET)]
AXE = Path(os.environ.get("AXE", Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"))
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
MARKUP = "<img src=x onerror=document.title='owned'><b>%{x}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """A page that asks nobody else and has nothing to complain about."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
    page.on("request", lambda request: None if request.url.startswith(address) else said.append(request.url))
    page.goto(address)
    yield page
    # The stream that a page closes itself, to ask for another, counts as failed.
    assert [line for line in said if not line.startswith(f"failed: {address}api/stream")] == []
    context.close()


def until(found: Callable[[], Any], what: str, patience: float = 90) -> Any:
    end = time.monotonic() + patience
    while not (value := found()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return value


def shoot(page: Any, name: str) -> None:
    if folder := os.environ.get("SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def points(page: Any, name: str = "live") -> int:
    """Points of a run's curve in the first plot."""
    code = (
        "(name) => (document.getElementById('by-round').data ?? []).find((each) => each.name === name)?.x.length ?? 0"
    )
    return int(page.evaluate(code, name))


def complaints(page: Any) -> list[str]:
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")]


def kill_a_worker(run: int) -> None:
    """The youngest: a worker that replaces one that was killed dies at the same order."""
    workers = [worker for child in below(run) for worker in below(child) if alive(worker)]
    if workers:
        os.kill(max(workers), signal.SIGKILL)


def test_a_run_that_loses_a_worker_is_followed(browser: Any, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "earlier", done=8, rounds=8)
    words = ["name=live", "rounds=400", "workers=2", "epochs=3", "quorum=0.1"]
    with board(tmp_path) as address, opened(browser, address) as page, started(tmp_path, *words) as process:
        until(lambda: page.locator("#rows tr").count() == 2, "the run appears in the list")
        first = until(lambda: points(page), "the run is ticked by itself, and has a curve")
        until(lambda: points(page) > first + 1, "the curve grows")
        until(lambda: page.locator(".clients .arrived").count(), "a client lights up")

        def failed() -> bool:
            kill_a_worker(process.pid)
            time.sleep(0.4)
            return any("died" in text for text in page.locator("#news .failed").all_text_contents())

        until(failed, "the failure is in the news, with its cause")
        until(lambda: page.locator("#failures tbody tr").count(), "and in the table when the round is over")
        assert "the process that trained this client died" in page.locator("#failures").text_content()
        count = points(page)
        until(lambda: points(page) > count, "the run goes on")
        page.locator("#rows tr", has_text="earlier").locator("input").check()
        until(lambda: points(page, "earlier") == 8, "two runs in one plot")
        assert points(page) > count
        assert page.locator("#comparison tbody tr").count() == 2
        shoot(page, "followed")
        process.kill()
        process.wait()
        until(lambda: "interrupted" in page.locator("#rows tr", has_text="live").text_content(), "it was killed")
        said = until(lambda: page.locator("#spoken").text_content(), "the news is read out")
        assert "live" in said


def show(folder: Path) -> None:
    """Runs of every kind, and one that seems to be in a round."""
    make_run(folder, MARKUP)
    make_run(folder, "earlier", done=20, rounds=20)
    for number in range(12):
        make_run(folder, f"older-{number}", done=2, rounds=2)
    run = make_run(folder, "stopped", done=6, rounds=10)
    died = {"client": 3, "cause": "died", "message": "the process that trained this client died"}
    with (run / "events.jsonl").open("a") as file:
        file.write(round_line(6, failures=[died]))
    news = asked(7, list(range(24))) + "".join(map(replied, range(9))) + replied(9, cause="deadline", message="late")
    why = json.dumps({"event": "stopped", "at": 1.0, "error": "round 7: 9 of 24 clients answered, 12 are needed"})
    (run / "live.jsonl").write_text(news + why + "\n")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_look_is_readable(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm install axe-core, or AXE=path/of/axe.min.js")
    show(tmp_path / "runs")
    with board(tmp_path) as address, opened(browser, address, width, scheme) as page:
        until(lambda: page.locator("#rows tr").count(), "the list")
        if page.locator("#more").is_visible():
            page.locator("#more").click()
        for name in ("earlier", "stopped", "<img"):
            page.locator("#rows tr", has_text=name).locator("input").check()
        until(lambda: points(page, "stopped") == 7, "the curves")
        until(lambda: page.locator(".clients li").count() == 24, "the clients")
        for summary in page.locator("summary").all():
            summary.click()
        until(lambda: page.locator("#by-round-table tbody tr").count() == 20, "the plot as a table")
        until(lambda: page.locator("#by-bytes-table tbody tr").count() > 21, "the other plot as a table")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
        time.sleep(0.6)  # Until colours have changed.
        assert complaints(page) == []
        shoot(page, f"{width}-{scheme}")


def test_names_are_text_wherever_they_appear(browser: Any, tmp_path: Path) -> None:
    show(tmp_path / "runs")
    with board(tmp_path) as address, opened(browser, address) as page:
        page.locator("#rows tr", has_text="<img").locator("input").check()
        until(lambda: page.locator("#comparison", has_text=MARKUP).count(), "the table")
        until(lambda: page.locator("#by-round .points path").count(), "the plot")
        page.locator("#by-round .points path").last.hover(force=True)
        until(lambda: page.locator("#by-round .hoverlayer text").count(), "what the plot says under the mouse")
        hovered = "".join(page.locator("#by-round .hoverlayer").all_text_contents())
        assert "<img src=x" in hovered
        assert page.locator("img, #by-round b, #by-round a").count() == 0
        assert page.title() == "subbit board"


def test_with_the_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    show(tmp_path / "runs")
    with board(tmp_path) as address, opened(browser, address) as page:
        until(lambda: page.locator("#rows tr").count(), "the list")
        page.locator("#search").focus()
        page.keyboard.type("earlier")
        until(lambda: page.locator("#rows tr").count() == 1, "the search")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.type") == "checkbox"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Space")
        until(lambda: points(page, "earlier") == 20, "ticked")
        page.reload()
        until(lambda: points(page, "earlier") == 20, "ticks are in the address")

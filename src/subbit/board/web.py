"""The web application: a page, its files, and a stream of what changes (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from subbit.board.guard import Guard
from subbit.board.run_course import Course
from subbit.board.watcher import View, Watcher

OWN, SHARED = (Path(__file__).parents[1] / folder / "static" for folder in ("board", "pages"))
FILES = {
    "/": OWN / "index.html",
    "/static/palette.css": SHARED / "palette.css",
    "/static/board.css": OWN / "board.css",
    "/static/board.js": OWN / "board.js",
    "/static/plots.js": OWN / "plots.js",
    "/static/icon.svg": OWN / "icon.svg",
    "/static/plotly-basic.min.js": SHARED / "plotly-basic.min.js",
}
"""All there is. No part of an address is ever part of a path."""
MOST_OPEN = 32
"""Runs that one page can follow closely."""
HEARTBEAT = 10.0
TICK = 1.0


def board_app(folder: Path, ending: Callable[[], bool] = lambda: False) -> Starlette:
    """`ending`: whether the server is about to end, so that streams end too."""
    watcher = Watcher(folder)

    @asynccontextmanager
    async def watching(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(watcher.watch())
        yield
        task.cancel()

    async def runs(request: Request) -> Response:
        view = await watcher.refresh()
        return JSONResponse({"folder": _shown(folder), "runs": [asdict(row) for _, row in view.rows.values()]})

    async def course(request: Request) -> Response:
        run = request.path_params["run"]
        with watcher.followed({run}):
            view = await watcher.refresh()
        if run not in view.courses:
            return JSONResponse({"error": "no such run"}, 404)
        row = view.rows[run][1]
        return JSONResponse({"run": asdict(row), **_message(run, view.courses[run], 0)})

    async def stream(request: Request) -> Response:
        chosen = set(request.query_params.getlist("run")[:MOST_OPEN])
        return StreamingResponse(_stream(watcher, folder, chosen, ending), media_type="text/event-stream")

    routes = [Route(path, _file(file)) for path, file in FILES.items()]
    routes += [
        Route("/api/runs", runs),
        Route("/api/runs/{run}", course),
        Route("/api/stream", stream),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(Guard)], lifespan=watching)
    app.state.watcher = watcher
    return app


def _shown(folder: Path) -> str:
    """As people write it."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)


def _file(path: Path) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return FileResponse(path)

    return answer


async def _stream(watcher: Watcher, folder: Path, chosen: set[str], ending: Callable[[], bool]) -> AsyncIterator[str]:
    """Everything first, then what changes."""
    page = _Page(chosen)
    with watcher.followed(chosen):
        yield _event("hello", {"folder": _shown(folder)})
        view: View | None = await watcher.refresh()
        quiet = 0.0
        while not ending():
            messages = [] if view is None else page.messages(view)
            for message in messages:
                yield message
            quiet = 0.0 if messages else quiet + TICK
            if quiet >= HEARTBEAT:
                quiet = 0.0
                yield ": still here\n\n"
            view = await watcher.next_view(TICK)


class _Page:
    """What one page has been told."""

    def __init__(self, chosen: set[str]) -> None:
        self._chosen = chosen
        self._look, self._runs = -1, set[str]()
        self._there: bool | None = None
        self._courses: dict[str, tuple[int, int, int]] = {}
        """By run: generation, version and number of points."""

    def messages(self, view: View) -> list[str]:
        found = []
        rows = [asdict(row) for look, row in view.rows.values() if look > self._look or row.id not in self._runs]
        gone = sorted(self._runs - view.rows.keys())
        if rows or gone or self._there != view.there:
            found.append(_event("rows", {"rows": rows, "gone": gone, "there": view.there}))
        self._look, self._runs, self._there = view.look, set(view.rows), view.there
        for run in sorted(self._chosen & view.courses.keys()):
            course = view.courses[run]
            generation, version, count = self._courses.get(run, (-1, -1, 0))
            if (generation, version) != (course.generation, course.version):
                sent = count if generation == course.generation else 0
                message = _message(run, course, sent)
                found.append(_event("course", message))
                self._courses[run] = (course.generation, course.version, sent + len(message["points"]))
        return found


def _message(run: str, course: Course, sent: int) -> dict[str, Any]:
    """The points after those that were sent; `start` is where they belong."""
    return {
        "id": run,
        "start": sent,
        "points": course.points[sent:],
        "before": course.before,
        "live": course.live,
        "damaged": course.damaged,
    }


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"

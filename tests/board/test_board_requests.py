"""Requests to the board: what they get, and which are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from subbit.board.guard import POLICY
from subbit.board.watcher import run_id
from subbit.board.web import FILES, board_app
from tests.board.made_runs import make_run

NAME = "<img src=x onerror=alert(1)>"


class Client:
    """Requests to an application, without a server."""

    def __init__(self, folder: Path) -> None:
        self._app = board_app(folder)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:
                return await client.request(method, path, **options)

        return asyncio.run(answer())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    runs = tmp_path / "runs"
    make_run(runs, NAME)
    make_run(runs, "half", done=1, rounds=9)
    make_run(tmp_path, "outside")
    (runs / "link").symlink_to(tmp_path / "outside")
    return Client(runs)


def test_the_page_and_its_files(client: Client) -> None:
    for path in FILES:
        found = client.get(path)
        assert found.status_code == 200, path
        assert found.content
    page = client.get("/").text
    assert "<script>" not in page
    assert "style=" not in page
    assert "://" not in page
    assert client.request("HEAD", "/").status_code == 200


def test_the_list_and_the_course_of_a_run(client: Client) -> None:
    found = client.get("/api/runs").json()["runs"]
    assert {row["name"]: row["state"] for row in found} == {NAME: "finished", "half": "interrupted"}
    course = client.get(f"/api/runs/{run_id(NAME)}").json()
    assert course["run"]["name"] == NAME
    assert [point["round"] for point in course["points"]] == [0, 1, 2]


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/runs/nobody", "/nowhere", "/static/board.js"])
@pytest.mark.parametrize("host", ["127.0.0.1:8642", "evil.example"])
def test_every_answer_has_the_headers(client: Client, path: str, host: str) -> None:
    found = client.get(path, headers={"host": host})
    assert found.headers["content-security-policy"] == POLICY
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in found.headers
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:8642", "LOCALHOST", "[::1]", "[::1]:8642"])
def test_names_of_this_machine(client: Client, host: str) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.0.0.1@evil.example", "evil#localhost",
     "0.0.0.0", "127.0.0.2", "", "127.0.0.1:", "127.0.0.1:99999999", "localhost\t"],
)  # fmt: skip
def test_other_names_are_refused(client: Client, host: str) -> None:
    found = client.get("/api/runs", headers={"host": host})
    assert found.status_code == 421
    assert "half" not in found.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "MKCOL"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/stream"])
def test_nothing_but_reading(client: Client, method: str, path: str) -> None:
    found = client.request(method, path)
    assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    ["/api/runs/half", "/api/runs/..", "/api/runs/%2e%2e%2foutside", "/api/runs/link", f"/api/runs/{run_id('link')}",
     f"/api/runs/{run_id('../outside')}", "/static/../web.py", "/static/%2e%2e/web.py", "/static/..%2fweb.py",
     "/static/plotly-LICENSE", "/../../etc/passwd", "//etc/passwd", "/api/runs/" + 10_000 * "x", "/api/runs/%00"],
)  # fmt: skip
def test_no_address_leads_anywhere_else(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404

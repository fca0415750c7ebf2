"""A tracker on Flower's server side: the nodes know nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subbit.config.resolve import resolve, with_track
from subbit.flower.server import continue_or_create, serve
from subbit.runtime.events import MainRound
from subbit.runtime.problem import build_problem
from subbit.runtime.run import Progress
from tests.flower.grid import FakeGrid
from tests.flower.job import JOB
from tests.tracking import test_trackers
from tests.tracking.test_trackers import ME, WRITTEN

pytestmark = pytest.mark.usefixtures("a_run")
nothing_written = test_trackers.nothing_written
VALUES = {**JOB, "clients": 2, "rounds": 3, "limit": 60, "test_limit": 20, "deadline": 0.5, "name": "tracked"}


def test_the_server_tells_its_tracker_and_goes_on_with_another(tmp_path: Path) -> None:
    settings = resolve({**VALUES, "folder": str(tmp_path)})
    problem = build_problem(settings.run)
    grid: Any = FakeGrid(settings, tmp_path)  # Nodes without a tracker are no nodes of another job.

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    folder, _ = continue_or_create(settings, "")
    with pytest.raises(KeyboardInterrupt):
        serve(grid, problem, folder, resume=False, report=stop)
    tracked = with_track(settings, ME)
    folder, resume = continue_or_create(tracked, "")
    assert resume
    serve(grid, problem, folder, resume=True, settings=tracked)
    events = [told for kind, told in WRITTEN if kind == "event" and isinstance(told, MainRound)]
    assert [event.round for event in events] == [0, 1, 2]
    assert all(not event.failures for event in events)
    assert WRITTEN[-1][0] == "finish"

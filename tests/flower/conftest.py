"""Fixtures for the tests on Flower."""

from __future__ import annotations

import pytest
from flwr.supercore.task_identity import TaskIdentity


@pytest.fixture
def a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages carry the identity of the process that writes them, which Flower sets before it starts an app."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)

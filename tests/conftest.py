"""Fixtures and settings for all tests."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

from subbit.core import plugins, registry

os.environ.setdefault("HF_HUB_OFFLINE", "1")
settings.register_profile("subbit", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("subbit")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side; torch threads would only get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_seed() -> None:
    """Networks draw their first weights from torch's own generator, which must not depend on the tests before."""
    torch.manual_seed(0)


@pytest.fixture
def forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test loads into this process is unknown to the next one."""
    for kind in registry.OWNERS:
        known = registry.REGISTRIES[kind]
        monkeypatch.setattr(known, "_things", dict(known._things))
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(plugins, "_offered", {})
    monkeypatch.setattr(plugins, "_broken", None)

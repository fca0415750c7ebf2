"""Processes of this machine, for tests that end some and look for what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def below(pid: int) -> list[int]:
    """The children of this process, their children, and so on."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue  # It has just ended.
        found += [each for child in children for each in (child, *below(child))]
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

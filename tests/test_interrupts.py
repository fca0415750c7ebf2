"""Ctrl-C in a destructor, where Python ignores it, still ends the run."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from subbit.core.interrupts import remember_interrupts, stop_if_interrupted


@pytest.fixture
def remembered() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    remember_interrupts()
    yield
    signal.signal(signal.SIGINT, before)


class Interrupted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("remembered")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_lost_in_a_destructor_comes_back_once() -> None:
    stop_if_interrupted()
    Interrupted()
    with pytest.raises(KeyboardInterrupt):
        stop_if_interrupted()
    stop_if_interrupted()


@pytest.mark.usefixtures("remembered")
def test_an_ordinary_one_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stop_if_interrupted()


def test_somebody_elses_handler_stays() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    remember_interrupts()
    assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN

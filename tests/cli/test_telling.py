"""Progress in words: silence is broken, estimates follow the rounds, nothing in a name is markup."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from subbit.cli import telling
from subbit.cli.estimates import Estimate, clock, megabytes, told
from subbit.cli.telling import LONGEST, PATIENCE, Teller
from subbit.core.busy import busy_with
from subbit.runtime.run import Progress


def after(number: int, *, rounds: int = 10, seconds: float = 2.0, one_off: int = 500) -> Progress:
    """The progress after this round, each of which sends 1,000 bytes."""
    sent = 1000 * (number + 1)
    return Progress("main", number, rounds, 0.5, "accuracy", 0.1, sent + one_off, seconds, sent)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(telling.time, "monotonic", lambda: self.now)


def plain() -> tuple[Teller, io.StringIO]:
    written = io.StringIO()
    return Teller(console=Console(file=written, width=80)), written


def test_estimates_leave_out_the_first_round_and_one_off_costs() -> None:
    estimate = Estimate()
    assert told(estimate) == ""
    estimate.add(after(0, seconds=60.0))  # With compilation.
    assert estimate.seconds_left() == 9 * 60.0
    estimate.add(after(1))
    estimate.add(after(2))
    assert estimate.seconds_left() == 7 * 2.0
    assert estimate.bytes_in_all() == 10_500
    assert told(estimate) == "accuracy 0.5000, 0.004 MB of about 0.011 MB, about 0:14 left"
    estimate.add(after(9))
    assert told(estimate) == "accuracy 0.5000, 0.011 MB"


def test_estimates_of_a_resumed_run_know_what_was_sent_before() -> None:
    estimate = Estimate()
    estimate.add(after(7))
    assert estimate.bytes_in_all() == 10_500
    assert estimate.rounds_left == 2


def test_silence_is_broken_soon_and_then_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, (teller, written) = Clock(monkeypatch), plain()
    teller.hear("loading PyTorch")
    spoken = []
    for tenth in range(3000):
        now.now = 100 + tenth / 10
        before = written.tell()
        teller.break_silence()
        if written.tell() > before:
            spoken.append(now.now - 100)
    gaps = [after - before for before, after in zip([0.0, *spoken], spoken, strict=False)]
    assert gaps[0] <= PATIENCE + 0.1
    assert gaps == sorted(gaps)
    assert max(gaps) <= LONGEST + 0.1
    assert len(spoken) < 12
    assert written.getvalue().splitlines()[0] == "  2 s: loading PyTorch"


def test_another_stage_is_told_soon_and_details_alone_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, (teller, written) = Clock(monkeypatch), plain()
    for number in range(20):
        teller.hear(f"round 1 of 3: {number} of 20 clients answered")
        now.now += 2.0
        teller.break_silence()
    assert len(written.getvalue().splitlines()) < 6
    written.truncate(0)
    teller.hear("scoring the trained network")
    now.now += PATIENCE
    teller.break_silence()
    assert "scoring the trained network" in written.getvalue()


def test_rounds_are_about_ten_lines_without_control_characters() -> None:
    teller, written = plain()
    teller.begin("demo", 200)
    for number in range(200):
        teller.round(after(number, rounds=200))
    lines = written.getvalue().splitlines()
    assert 9 <= len(lines) <= 12
    assert lines[-1].startswith("demo, round 200 of 200: accuracy 0.5000")
    assert "\x1b" not in written.getvalue()


def test_a_quiet_teller_says_nothing_and_listens_to_nobody() -> None:
    written = io.StringIO()
    with Teller(quiet=True, console=Console(file=written)) as teller:
        busy_with("anything")
        teller.begin("demo", 1)
        teller.round(after(0, rounds=1))
    assert written.getvalue() == ""
    assert teller.stage == ""


def test_in_a_terminal_a_line_is_never_longer_than_the_terminal_and_no_name_is_markup() -> None:
    written = io.StringIO()
    console = Console(file=written, width=40, force_terminal=True, legacy_windows=False, color_system=None)
    teller = Teller(console=console)
    teller.begin("demo", 3)
    teller.round(after(0, rounds=3))
    teller.hear("reading data/[bold]x[/bold]/" + 80 * "a")
    with console.capture() as captured:
        console.print(teller)
    lines = captured.get().splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 40 for line in lines)
    assert "[bold]x" in lines[1]


def test_numbers_are_short() -> None:
    assert [megabytes(count) for count in (12_345, 1_234_567, 45_600_000, 7_890_000_000)] == [
        "0.012 MB",
        "1.23 MB",
        "45.6 MB",
        "7890 MB",
    ]
    assert [clock(seconds) for seconds in (7, 750, 11_100)] == ["0:07", "12:30", "3:05:00"]

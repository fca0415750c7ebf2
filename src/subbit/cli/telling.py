"""What a command is busy with, on stderr: in a terminal lines that change, elsewhere a plain line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from subbit.cli.consoles import changing, errors
from subbit.cli.estimates import Estimate, clock, told
from subbit.core.busy import heard_by

if TYPE_CHECKING:
    from subbit.runtime.run import Progress

PATIENCE = 2.5  # Seconds of silence before a plain line says what is going on.
LATER = 10.0  # The same once rounds are reported.
LONGEST = 60.0
LINES = 10  # Plain lines for the rounds of a run, about.


class Teller:
    """Listens to `busy_with` while it is entered. `quiet`: says nothing at all."""

    def __init__(self, *, quiet: bool = False, console: Console = errors) -> None:
        self.console, self.quiet = console, quiet
        self.live = console.is_terminal and not console.is_dumb_terminal
        self.started, self.spoken = time.monotonic(), time.monotonic()
        self.stage, self.name, self.rounds = "", "", 0
        self.estimate = Estimate()
        self._pause, self._printed_round = PATIENCE, 0
        self._ended = threading.Event()
        self._stack, self._spinner = ExitStack(), Spinner("line")

    def __enter__(self) -> Teller:
        if self.quiet:
            return self
        self._ended.clear()
        self._stack.enter_context(heard_by(self.hear))
        if self.live:
            from rich.live import Live

            shown = Live(self, console=self.console, refresh_per_second=4, transient=True, redirect_stdout=False)
            self._stack.enter_context(changing(shown))
        else:
            thread = threading.Thread(target=self._keep_talking, daemon=True)
            thread.start()
            self._stack.callback(thread.join)
            self._stack.callback(self._ended.set)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Inside, it says nothing and has no thread."""
        self._stack.close()
        try:
            yield
        finally:
            self.__enter__()

    def hear(self, what: str) -> None:
        if what.partition(":")[0] != self.stage.partition(":")[0] and not self.estimate.last:
            self._pause = PATIENCE
        self.stage = what

    def begin(self, name: str, rounds: int) -> None:
        """A job with this many rounds."""
        self.name, self.rounds = name, rounds
        self.estimate, self._printed_round, self._pause = Estimate(), 0, PATIENCE

    def round(self, progress: Progress) -> None:
        """After each round."""
        self.estimate.add(progress)
        if self.quiet:
            return
        done, last = progress.round_number + 1, progress.round_number + 1 == progress.rounds
        if last:
            self.line(f"{self._where()}: {told(self.estimate)} in {clock(time.monotonic() - self.started)}")
        elif not self.live and (done - self._printed_round >= progress.rounds / LINES or self._silence() > LATER):
            self._printed_round, self._pause = done, LATER
            self.line(f"{self._where()}: {told(self.estimate)}")

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self.spoken = time.monotonic()
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _where(self) -> str:
        done = 0 if self.estimate.last is None else self.estimate.last.round_number + 1
        return f"{self.name}, round {done} of {self.rounds}"

    def _silence(self) -> float:
        return time.monotonic() - self.spoken

    # Not in a terminal.

    def _keep_talking(self) -> None:
        while not self._ended.wait(0.1):
            self.break_silence()

    def break_silence(self) -> None:
        """Say what is going on if nothing was said for a while: soon at first, then less often."""
        if self.stage and self._silence() >= self._pause:
            self._pause = min(LONGEST, 2 * self._pause)
            self.line(f"  {time.monotonic() - self.started:.0f} s: {self.stage}")

    # In a terminal.

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.name:
            last = self.estimate.last
            done = 0 if last is None else last.round_number + 1
            bar = ProgressBar(
                max(1, self.rounds), done, width=12, style="dim", complete_style="green", finished_style="green"
            )
            yield _one_line(self.name, bar, f"{done}/{self.rounds}", told(self.estimate))
        elapsed = clock(time.monotonic() - self.started)
        yield _one_line(self._spinner.render(time.monotonic()), elapsed, self.stage or "starting")


def _one_line(*cells: Any) -> Table:
    """Cut off at the width of the terminal, so that it can be written over."""
    table = Table.grid(padding=(0, 1))
    for _ in cells:
        table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table

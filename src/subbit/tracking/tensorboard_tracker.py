"""TensorBoard: event files in the run folder, so that `tensorboard --logdir runs` shows every run by its name."""

from __future__ import annotations

from typing import Any

from subbit.runtime.event_numbers import metrics_of, numbers_of, step_of
from subbit.runtime.events import Event
from subbit.tracking.tracker import TrackedRun, Tracker

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Event files in the run folder, for `tensorboard --logdir runs`"""

    needs = "tensorboard"
    needs_folder = True

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        from torch.utils.tensorboard import SummaryWriter

        assert run.folder is not None
        # Whatever an earlier process wrote from this step on, TensorBoard leaves out.
        self.writer: Any = SummaryWriter(str(run.folder / FOLDER), purge_step=run.next_step)
        self.step = run.next_step
        if not run.next_step:
            self._text("config.toml", run.config_text)

    def event(self, event: Event) -> None:
        self.step = step_of(event)
        for name, value in metrics_of(event).items():
            self.writer.add_scalar(name, value, self.step)
        self.writer.flush()

    def finish(self, summary: dict[str, Any]) -> None:
        from torch.utils.tensorboard.summary import hparams

        numbers = {f"summary/{name}": value for name, value in numbers_of(summary).items()}
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, self.step)
        config = self.run.config.items()
        # As its own `add_hparams` does, but here and not in a folder of its own beside the curves.
        values = {name: value if isinstance(value, bool | int | float) else str(value) for name, value in config}
        for part in hparams(values, numbers):
            self.writer.file_writer.add_summary(part)
        self.writer.close()

    def stop(self) -> None:
        self.writer.close()

    def _text(self, name: str, text: str) -> None:
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown for text as it is.
        self.writer.add_text(name, indented, 0)

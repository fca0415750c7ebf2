"""What a tracker is: it is told of a run what happens, and cannot change it.

A tracker is made with a `TrackedRun`, told every event in order, and finished with the summary. `track=NAME` chooses
one of ours or a registered one, `track=my_package.my_module:make` a function or class of one's own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from subbit.core.errors import PluginError
from subbit.core.registry import Registry, make_registry
from subbit.runtime.events import Event
from subbit.runtime.tracked import TrackedRun as TrackedRun

_OURS = {
    "tensorboard": "subbit.tracking.tensorboard_tracker:TensorBoard",
    "mlflow": "subbit.tracking.mlflow_tracker:Mlflow",
    "wandb": "subbit.tracking.wandb_tracker:Wandb",
}


class Tracker:
    """Base class of ours; one of your own needs only its methods."""

    needs: ClassVar[str] = ""
    """The package that must be installed; the extra has the name of the tracker."""
    needs_folder: ClassVar[bool] = False
    """Whether it writes into the run folder."""

    def __init__(self, run: TrackedRun) -> None:
        self.run = run

    def event(self, event: Event) -> None:
        """Something happened, see `subbit.runtime.events`. A resumed run does not repeat what was told before."""

    def finish(self, summary: dict[str, Any]) -> None:
        """The run is finished; the contents of `summary.json`."""

    def stop(self) -> None:
        """The run was interrupted or failed. It may be resumed later, in another process."""


def _check(name: str, thing: Any) -> None:
    if not callable(thing):
        raise PluginError(f"tracker {name!r}: needs a class or a function of the run, found {type(thing).__name__}")


TRACKERS: Registry[Any] = make_registry("tracker", _OURS, _check)

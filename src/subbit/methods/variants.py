"""Names for settings of another method: `topk` is `fedavg` with `codec=topk`, under the name that a comparison uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from subbit.methods.method import Method
from subbit.models.task import Task


@dataclass(frozen=True)
class Variant:
    """A method by another name, with some of its keys fixed."""

    base: type[Method[Any]]
    name: str
    title: str
    citation: str
    sends_up: str
    words: Mapping[str, Any]
    """The keys that the name stands for."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": {}, "paper": {}})
    paper: str = "baseline"

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of a method: as its base has it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.base, name)

    def __call__(self, parameters: Any, task: Task) -> Method[Any]:
        return self.base(parameters, task)

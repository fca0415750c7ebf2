"""Named settings of other methods: `topk` is `fedavg` with `codec=topk`, under the name used in comparisons."""

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
    """The keys fixed by the name."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": {}, "paper": {}})
    paper: str = "baseline"

    def __getattr__(self, name: str) -> Any:
        """All other attributes come from the base method."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.base, name)

    def __call__(self, parameters: Any, task: Task) -> Method[Any]:
        return self.base(parameters, task)

"""Predictions of a trained run: a row per example, as its objective tells, and the score where labels are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import SubbitError
from subbit.data import Examples
from subbit.export.read_inputs import Inputs
from subbit.export.runs import TrainedRun
from subbit.objectives import Objective
from subbit.objectives.objective import add_up, logits_of

BATCH = 128
MASKS = "segmentation"
Row = dict[str, Any]


@dataclass
class Predictions:
    """Iterating makes the rows, batch by batch; afterwards the scores are known."""

    trained: TrainedRun
    inputs: Inputs
    masks: list[NDArray[np.int32]] = field(default_factory=list)
    """Of segmentation, instead of rows: a batch of masks each."""
    _tallies: list[NDArray[np.float64]] = field(default_factory=list)
    _unfit: str | None = None

    @property
    def has_rows(self) -> bool:
        return self._objective.name in _ROWS

    @property
    def is_masks(self) -> bool:
        return self._objective.name == MASKS

    def __iter__(self) -> Iterator[Row]:
        module, count = self.trained.workplace.module, len(self.inputs.data)
        names = self.trained.workplace.problem.class_names
        for start in range(0, count, BATCH):
            chosen = np.arange(start, min(start + BATCH, count))
            batch = self.inputs.data.batch(chosen)
            with torch.no_grad():
                outputs = self._objective.outputs(module, batch)
            self._tally(outputs, batch)
            if self.is_masks:
                self.masks.append(logits_of(outputs).argmax(dim=1).to(torch.int32).numpy())
            if self.has_rows:
                yield from self._rows(chosen, outputs, batch, names)

    def scores(self) -> dict[str, float]:
        """Empty if there are no labels."""
        if not self._tallies or self._unfit is not None:
            return {}
        return self._objective.scores(add_up(np.concatenate(self._tallies)))

    @property
    def unfit(self) -> str | None:
        """Why labels that are there say nothing about the network."""
        return self._unfit

    @property
    def _objective(self) -> Objective:
        return self.trained.workplace.problem.objective

    def _rows(
        self, chosen: NDArray[np.int64], outputs: Any, batch: Examples, names: Sequence[str] | None
    ) -> Iterator[Row]:
        found = _ROWS[self._objective.name](logits_of(outputs).float(), names)
        one_class = self.inputs.labelled and self._objective.name == "classification"
        for number, place in enumerate(chosen.tolist()):
            row: Row = {"example": place if self.inputs.names is None else self.inputs.names[place]}
            if one_class:
                row["label"] = _name(int(batch.labels[number]), names)
            yield {**row, **found[number]}

    def _tally(self, outputs: Any, batch: Examples) -> None:
        if not self.inputs.labelled or self._unfit is not None:
            return
        try:
            self._objective.check_labels(batch.labels, "labels")
            self._objective.check_outputs(outputs, batch, self._objective.classes(batch.labels))
            self._tallies.append(self._objective.tally(outputs, batch).numpy())
        except SubbitError as error:
            self._unfit = str(error)


def _name(number: int, names: Sequence[str] | None) -> str | int:
    return number if names is None or number >= len(names) else names[number]


def _classes(logits: Tensor, names: Sequence[str] | None) -> list[Row]:
    probabilities, classes = logits.softmax(dim=1).max(dim=1)
    pairs = zip(classes.tolist(), probabilities.tolist(), strict=True)
    return [{"class": _name(number, names), "probability": _short(share)} for number, share in pairs]


def _labels(logits: Tensor, names: Sequence[str] | None) -> list[Row]:
    rows = []
    for line in logits:
        told = torch.nonzero(line > 0).flatten().tolist()
        shares = line.sigmoid().tolist()
        rows.append(
            {
                "labels": [_name(number, names) for number in told],
                "probabilities": [_short(shares[number]) for number in told],
            }
        )
    return rows


def _values(outputs: Tensor, names: Sequence[str] | None) -> list[Row]:
    lines = outputs.reshape(len(outputs), -1).tolist()
    if lines and len(lines[0]) == 1:
        return [{"value": _short(line[0])} for line in lines]
    return [{f"value_{place}": _short(value) for place, value in enumerate(line)} for line in lines]


def _short(value: float) -> float:
    """As precise as float32."""
    return float(f"{value:.9g}")


_ROWS: dict[str, Callable[[Tensor, Sequence[str] | None], list[Row]]] = {
    "classification": _classes,
    "multi-label": _labels,
    "regression": _values,
}

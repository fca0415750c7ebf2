"""What an objective needs of a data set's labels. Objectives themselves are above this folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from subbit.data.examples import Examples

LabelKind = Literal["class", "number", "position", "token", "any"]
"""class     one of several, int64 [n]
number    one or several numbers, float32 [n, ...]
position  a class at every position, int64 [n, height, width]
token     none: the tokens of a text are the labels
any       whatever there is"""


class Needs(Protocol):
    """The part of an objective that reading needs."""

    name: ClassVar[str]
    label_kind: ClassVar[LabelKind]

    def prepare(self, batch: Examples) -> Examples:
        """The batch with labels of the objective's form; raises `DataError` for others."""

    def classes(self, labels: Tensor) -> int:
        """Number of outputs that these labels need."""


class NeedsClasses:
    """One class per example: what readers check by themselves."""

    name: ClassVar[str] = "classification"
    label_kind: ClassVar[LabelKind] = "class"

    def prepare(self, batch: Examples) -> Examples:
        return batch

    def classes(self, labels: Tensor) -> int:
        return 1 + int(labels.max()) if len(labels) else 1


@dataclass(frozen=True)
class Reading:
    """How files are read: for which objective, and by which tokenizer and with which names of classes if no option
    names them."""

    needs: Needs
    tokenizer: str = "words"
    class_names: tuple[str, ...] = ()


FOR_CLASSES = Reading(NeedsClasses())

"""Which columns of a table are inputs, labels and owners: the options behind the name of a file.

FILE.csv?text=body&label=topic&owner=user        FILE.csv?features=size,rooms&label=price
FILE.csv?image=path&size=64&label=breed          FILE.csv?label=price        all other columns of numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from subbit.core.errors import ConfigError, DataError
from subbit.data.held_out import SHARE
from subbit.data.needs import Needs

INPUTS = ("text", "image", "features")
OPTIONS = (*INPUTS, "label", "classes", "owner", "test", "test_share", "tokenizer", "length", "pack", "size", "scale")
LARGEST_NUMBER = 4096
SHOWN = 30


@dataclass(frozen=True)
class Roles:
    inputs: Literal["text", "image", "features"]
    columns: tuple[str, ...]
    """Of the inputs."""
    labels: tuple[str, ...]
    owner: str | None
    found: bool
    """Whether the features were not named: columns without numbers are left out."""

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([*self.columns, *self.labels, *([self.owner] if self.owner else [])]))


class TableOptions:
    def __init__(self, given: dict[str, str], where: str) -> None:
        self.given, self.where = given, where
        for option, value in given.items():
            if option not in OPTIONS or not value:
                raise ConfigError(
                    f"{where}: found {option}={value}; the options are {', '.join(OPTIONS)}, each with a value"
                )
        inputs = [option for option in INPUTS if option in given]
        if len(inputs) > 1:
            raise ConfigError(f"{where}: found {' and '.join(inputs)}; need one of {', '.join(INPUTS)}")
        self.test_share = self._share()
        self.length, self.size = self._number("length"), self._number("size")
        self.scale, self.pack = self._switch("scale"), self._switch("pack")
        self.classes = tuple(name.strip() for name in given["classes"].split(",")) if "classes" in given else ()
        if len(set(self.classes)) < len(self.classes):
            raise ConfigError(f"{where}: found classes={given['classes']}; need each class once")

    def _number(self, option: str) -> int | None:
        text = self.given.get(option)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LARGEST_NUMBER):
            raise ConfigError(f"{self.where}: found {option}={text}; need an integer from 1 to {LARGEST_NUMBER}")
        return int(text)

    def _switch(self, option: str) -> bool:
        text = self.given.get(option, "false")
        if text not in ("true", "false"):
            raise ConfigError(f"{self.where}: found {option}={text}; need true or false")
        return text == "true"

    def _share(self) -> float:
        text = self.given.get("test_share", str(SHARE))
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise ConfigError(f"{self.where}: found test_share={text}; need a share above 0 and below 1")
        if "test_share" in self.given and "test" in self.given:
            raise ConfigError(f"{self.where}: found test and test_share; need one of them")
        return share

    def roles(self, names: Sequence[str], needs: Needs) -> Roles:
        labels = self._columns("label", names)
        if not labels and "label" in names and needs.label_kind != "token":
            labels = ("label",)
        if not labels and needs.label_kind not in ("token", "any"):
            raise DataError(f"{self.where}: {_listed(names)}; need a column of labels; name it with ?label=...")
        owner = self._columns("owner", names)
        if len(owner) > 1:
            raise ConfigError(f"{self.where}: found owner={self.given['owner']}; need one column")
        used = {*labels, *owner}
        given = next((option for option in INPUTS if option in self.given), None)
        if given is None:  # Columns that are usually called so.
            given = next((option for option in ("text", "image") if option in names and option not in used), "features")
        columns = self._columns(given, names) if given in self.given else ((given,) if given != "features" else ())
        if given != "features" and len(columns) > 1:
            raise ConfigError(f"{self.where}: found {given}={self.given[given]}; need one column")
        others = tuple(name for name in names if name not in used)
        return Roles(given, columns or others, labels, owner[0] if owner else None, not columns)  # type: ignore[arg-type]

    def _columns(self, option: str, names: Sequence[str]) -> tuple[str, ...]:
        text = self.given.get(option)
        if text is None:
            return ()
        wanted = (text,) if text in names else tuple(part.strip() for part in text.split(","))
        for name in wanted:
            if name not in names:
                raise DataError(f"{self.where}: there is no column {name!r}; {_listed(names)}")
        if len(set(wanted)) < len(wanted):
            raise ConfigError(f"{self.where}: found {option}={text}; need each column once")
        return wanted


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"the columns are {', '.join(names[:SHOWN])}{more}"

"""A law: a function with a title that states the requirement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subbit.core.errors import SubbitError


class LawError(SubbitError):
    """A law that does not hold, and what was found instead."""


@dataclass(frozen=True)
class Law:
    title: str
    holds: Callable[[Any], None]
    """Takes the name of a method, a codec with options (`Subject`) or an aggregator; raises `LawError` on failure."""


class Laws:
    """The laws of one kind, in order of definition."""

    def __init__(self) -> None:
        self.all: list[Law] = []

    def __call__(self, title: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        def decorate(function: Callable[[Any], None]) -> Callable[[Any], None]:
            self.all.append(Law(title, function))
            return function

        return decorate


def demand(condition: object, message: str) -> None:
    if not condition:
        raise LawError(message)


def laws_of(kind: str) -> list[Law]:
    """The laws of a kind; some kinds have none."""
    from subbit.conformance import aggregator_laws as aggregators
    from subbit.conformance import codec_laws as codecs
    from subbit.conformance import method_laws as methods

    found = {"method": methods.law, "codec": codecs.law, "aggregator": aggregators.law}
    return found[kind].all if kind in found else []

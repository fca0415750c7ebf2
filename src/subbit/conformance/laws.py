"""A law: a function with a sentence that says what it asks for."""

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
    """Of the name of a method, of a codec with options (`Subject`) or of an aggregator; raises `LawError` if not."""


class Laws:
    """The laws of one kind of thing, in the order in which they are written down."""

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
    """The laws of a kind; there are none for some."""
    from subbit.conformance import aggregator_laws as aggregators
    from subbit.conformance import codec_laws as codecs
    from subbit.conformance import method_laws as methods

    found = {"method": methods.law, "codec": codecs.law, "aggregator": aggregators.law}
    return found[kind].all if kind in found else []

"""Everything that can be chosen by name: one registry for each kind of thing, the same for ours and for yours.

    from subbit import register

    @register("aggregator", "my-mean")
    @dataclass(frozen=True)
    class MyMean: ...

Ours are known before they are imported (`ours`: name to "module:attribute"), so that listing names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Generic, TypeVar

from subbit.errors import ConfigError

Thing = TypeVar("Thing")


def nearest(word: str, known: list[str]) -> str:
    """'did you mean ...?' for the closest known word, or the list of them when none is close."""
    near = get_close_matches(word, known, n=1, cutoff=0.55)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"


class Registry(Generic[Thing]):
    """Names of one kind of thing, and the things themselves."""

    def __init__(self, kind: str, ours: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._ours = dict(ours or {})
        self._things: dict[str, Thing] = {}

    def register(self, name: str, thing: Thing) -> Thing:
        """Refuses a name that is taken by something else. A module that is imported again registers the same again."""
        known = self._things.get(name)
        if known is not None and _origin(known) != _origin(thing):
            raise ConfigError(f"{self.kind} {name!r} is taken by {_origin(known)}: choose another name")
        if name in self._ours and self._ours[name] != _origin(thing):
            raise ConfigError(f"{self.kind} {name!r} is one of subbit's own: choose another name")
        self._things[name] = thing
        return thing

    def find(self, name: str) -> Thing:
        if name not in self._things and name in self._ours:
            module, _, attribute = self._ours[name].partition(":")
            self._things[name] = getattr(import_module(module), attribute)
        if name not in self._things:
            raise ConfigError(f"unknown {self.kind} {name!r}: {nearest(name, self.names())}")
        return self._things[name]

    def names(self) -> list[str]:
        return sorted({*self._ours, *self._things})

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._ours

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


def _origin(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '?')}:{getattr(thing, '__qualname__', repr(thing))}"


REGISTRIES: dict[str, Registry[Any]] = {}
"""By kind: method, codec, map, aggregator, optimizer, regulariser, privacy, model, dataset, partition."""


def make_registry(kind: str, ours: Mapping[str, str] | None = None) -> Registry[Any]:
    """The registry of that kind; the folder that owns the kind makes it, once."""
    REGISTRIES[kind] = Registry(kind, ours)
    return REGISTRIES[kind]


def register(kind: str, name: str) -> Callable[[Thing], Thing]:
    """Decorator: the class or function that follows is the `kind` of that name."""
    if kind not in REGISTRIES:
        raise ConfigError(f"unknown kind {kind!r}: {nearest(kind, list(REGISTRIES))}")

    def decorate(thing: Thing) -> Thing:
        REGISTRIES[kind].register(name, thing)
        return thing

    return decorate

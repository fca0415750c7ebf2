"""Registries of everything that can be chosen by name: one per kind, for built-in and third-party components alike.

    from subbit import register

    @register("aggregator", "my-mean")
    class MyMean: ...

The package that owns a kind creates its registry (`make_registry`). Built-in components can be listed as
"module:attribute" without being imported, so listing names is cheap. Installed plugins (`subbit.core.plugins`) are
loaded only when an unknown name is looked up or all names are listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

from subbit.core.errors import ConfigError

Thing = TypeVar("Thing")
Check = Callable[[str, Any], None]
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A name is used on the command line, as a table in TOML files and in folder names."""

OWNERS = {
    "method": "subbit.methods.names",
    "codec": "subbit.codecs",
    "map": "subbit.maps",
    "aggregator": "subbit.exchange.posterior",
    "optimizer": "subbit.local.optimizers",
    "regulariser": "subbit.local.regularisers",
    "privacy": "subbit.privacy.privacy",
    "tuning": "subbit.peft.tuning",
    "model": "subbit.models.load_model",
    "dataset": "subbit.sets.named",
    "partition": "subbit.data.partition",
    "objective": "subbit.objectives.objective",
    "tracker": "subbit.tracking.tracker",
}
"""The module to import before a component of that kind can be registered or found."""


def nearest(word: str, known: list[str]) -> str:
    """'did you mean ...?' for the closest known word, or the list of known words if none is close."""
    near = get_close_matches(word, known, n=1, cutoff=0.55)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"


class Registry(Mapping[str, Thing]):
    """The components of one kind by name. `registry[name]` is `registry.find(name)`."""

    def __init__(self, kind: str, ours: Mapping[str, Any] | None = None, check: Check | None = None) -> None:
        self.kind = kind
        self._ours: dict[str, Any] = {}
        self._things: dict[str, Thing] = {}
        self._check: Check | None = None
        self.adopt(ours, check)

    def adopt(self, ours: Mapping[str, Any] | None, check: Check | None) -> None:
        """Add the owner's components and check. Others may have been registered while the owner was being imported."""
        self._ours |= ours or {}
        self._check = check or self._check

    def register(self, name: str, thing: Thing) -> Thing:
        """Reject a name that is already taken. Importing a module again may register the same component again."""
        if NAME_PATTERN.fullmatch(name) is None:
            raise ConfigError(f"{self.kind} {name!r}: a name has letters, digits, '.', '_' and '-' only")
        if name in self._ours and self._ours[name] is not thing and self._ours[name] != origin(thing):
            raise ConfigError(f"{self.kind} {name!r} is one of subbit's own: choose another name")
        known = self._things.get(name)
        if known is not None and origin(known) != origin(thing):
            raise ConfigError(f"{self.kind} {name!r} is taken by {origin(known)}: choose another name")
        if self._check is not None:
            self._check(name, thing)
        self._call_by(name, thing)
        self._things[name] = thing
        return thing

    def _call_by(self, name: str, thing: Thing) -> None:
        """Set the `name` of a class, so that it does not inherit the name of its base class."""
        if not isinstance(thing, type):
            return
        own = vars(thing).get("name", name)
        if own != name:
            raise ConfigError(f"{self.kind} {name!r}: the class calls itself {own!r}; give both the same name")
        thing.name = name  # type: ignore[attr-defined]

    def find(self, name: str) -> Thing:
        if name not in self:
            from subbit.core.plugins import broken_packages

            broken = "".join(f"; {reason}" for reason in broken_packages())
            raise ConfigError(f"unknown {self.kind} {name!r}: {nearest(name, self.names())}{broken}")
        if name not in self._things:
            ours = self._ours[name]
            if isinstance(ours, str):
                module, _, attribute = ours.partition(":")
                ours = getattr(import_module(module), attribute)
            self._things[name] = ours
        return self._things[name]

    def has(self, name: object) -> bool:
        """Whether the name is known already. Unlike `name in registry` this loads no plugins."""
        return name in self._things or name in self._ours

    def names(self) -> list[str]:
        return sorted(self)

    def loaded(self) -> list[Thing]:
        """The components that are already imported."""
        return list(self._things.values())

    def of_module(self, module: str) -> dict[str, Thing]:
        """The components that this module registered."""
        return {name: thing for name, thing in self._things.items() if getattr(thing, "__module__", "") == module}

    def get(self, name: str, default: Any = None) -> Any:
        return self.find(name) if name in self else default

    def __getitem__(self, name: str) -> Thing:
        return self.find(name)

    def __contains__(self, name: object) -> bool:
        if self.has(name):
            return True
        _load_packages()
        return self.has(name)

    def __iter__(self) -> Iterator[str]:
        """Built-in names first, in the order of their definition."""
        _load_packages()
        return iter([*self._ours, *(name for name in self._things if name not in self._ours)])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _load_packages() -> None:
    from subbit.core.plugins import load_packages

    load_packages()


def origin(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '?')}:{getattr(thing, '__qualname__', repr(thing))}"


def is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "subbit"


def first_line(thing: Any) -> str:
    """First line of the docstring: the description shown in lists."""
    return next(iter((getattr(thing, "__doc__", None) or "").strip().splitlines()), "")


class _Registries(dict[str, Registry[Any]]):
    """Registries by kind. Looking up a kind imports its owner."""

    def __missing__(self, kind: str) -> Registry[Any]:
        if kind not in OWNERS:
            raise ConfigError(f"unknown kind {kind!r}: {nearest(kind, list(OWNERS))}")
        try:
            import_module(OWNERS[kind])
        except ModuleNotFoundError as error:
            if error.name is None or not OWNERS[kind].startswith(error.name):
                raise
        if kind not in self:  # The owner does not exist or is currently being imported.
            self[kind] = Registry(kind)
        return self[kind]


REGISTRIES = _Registries()


def make_registry(kind: str, ours: Mapping[str, Any] | None = None, check: Check | None = None) -> Registry[Any]:
    """Create the registry of that kind, or extend it. Called once by the package that owns the kind.

    `ours` maps names to components or, for a lazy import, to "module:attribute". `check` is called with the name and
    the component before it is registered, and raises a `ConfigError` for an invalid one.
    """
    if kind in REGISTRIES:
        REGISTRIES[kind].adopt(ours, check)
    else:
        REGISTRIES[kind] = Registry(kind, ours, check)
    return REGISTRIES[kind]


def register(kind: str, name: str) -> Callable[[Thing], Thing]:
    """Decorator that registers a class or function under this kind and name."""
    registry = REGISTRIES[kind]

    def decorate(thing: Thing) -> Thing:
        registry.register(name, thing)
        return thing

    return decorate

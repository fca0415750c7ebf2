"""Configurations made of pieces: tables of keys, and choices by name that add keys of their own.

A piece is a frozen dataclass. Its fields are keys. A field made by `choice` takes the name of a registered component,
and the fields of that component become keys of the same table:

    [up]
    codec = "eden"     # a choice ...
    bits = 1.0         # ... and an option of the chosen codec

A field whose type is itself a piece is a table. On the command line a key is written `up.codec=eden`, or `codec=eden`
if only one table has it. Keys of the table `down` are written `down.codec` or `down_codec`, except for its own options
that no other table has (`step`). A key that none of the chosen pieces has is an error, even if another choice would
have it. A configuration may have a static function `implied`, which says what else follows from the choices made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from subbit.core.blame import blaming
from subbit.core.errors import ConfigError
from subbit.core.registry import REGISTRIES, nearest
from subbit.core.values import field_types, parse_value

Piece = TypeVar("Piece")
Words = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Keys and values in the order in which they were given. If two words mean the same key, the last one wins."""
Place = tuple[str, str]
"""A table and a key in it."""
DOWN = "down"
"""The table whose choices and their options need its name as a prefix, because the uplink has the same choices."""


def choice(
    kind: str, default: Any, *, accepts: Callable[[Any], bool] | None = None, others: tuple[Any, ...] = ()
) -> Any:
    """A field whose value is chosen by name from the registry of that kind.

    `accepts` tells which registered classes are allowed. `others` are instances whose options differ here from the
    defaults of their class.
    """
    return dataclasses.field(default=default, metadata={"kind": kind, "accepts": accepts, "others": others})


def only_with(key: str, fits: Callable[[Any], bool], default: Any) -> Any:
    """A field that is an option only if what was chosen as `key`, in the same table, fits."""
    return dataclasses.field(default=default, metadata={"only_with": (key, fits)})


def is_piece(declared: Any) -> bool:
    return dataclasses.is_dataclass(declared)  # True for types and for instances.


def own_options(schema: Any) -> dict[str, Any]:
    """Name and type of the fields that a user may set. Fields with `repr=False` are not options."""
    shown = {field.name for field in dataclasses.fields(schema) if field.init and field.repr}
    return {name: declared for name, declared in field_types(schema).items() if name in shown}


class Table:
    """One table of a configuration. Its keys depend on the choices made in it."""

    def __init__(self, name: str, schema: type[Any], defaults: dict[str, Any]) -> None:
        self.name, self.schema, self.defaults = name, schema, defaults
        fields = dataclasses.fields(schema)
        self.choices = {field.name: field for field in fields if "kind" in field.metadata}
        tables = {field.name for field in fields if is_table(field)}
        options = own_options(schema)
        self.plain = {name: options[name] for name in options if name not in self.choices and name not in tables}
        self.conditions = {each.name: each.metadata["only_with"] for each in fields if "only_with" in each.metadata}
        self.chosen: dict[str, Any] = {name: defaults[name] for name in self.choices}

    def choose(self, key: str, name: Any) -> None:
        field = self.choices[key]
        kind, accepts = field.metadata["kind"], field.metadata["accepts"]
        registry = REGISTRIES[kind]
        known = [each for each in registry.names() if accepts is None or accepts(registry.find(each))]
        if not isinstance(name, str) or name not in known:
            raise ConfigError(f"{self._full(key)}={name!r}: {nearest(str(name), known)}")
        alike = [each for each in (self.defaults[key], *field.metadata["others"]) if each.name == name]
        with blaming(f"{kind} {name!r}", registry.find(name)):
            self.chosen[key] = alike[0] if alike else registry.find(name)()

    def options(self) -> dict[str, Any]:
        """Every key that is valid under the current choices, with its type."""
        keys = {name: declared for name, declared in self.plain.items() if self._holds(name)}
        for key, thing in self.chosen.items():
            keys[key] = str
            keys |= own_options(type(thing))
        return keys

    def _holds(self, name: str) -> bool:
        key, fits = self.conditions.get(name, ("", bool))
        return not key or fits(self.chosen[key])

    def build(self, values: Mapping[str, Any], pieces: Mapping[str, Any]) -> Any:
        declared = self.options()
        parsed = {
            key: parse_value(self._full(key), value, declared[key])
            for key, value in values.items()
            if key not in self.choices
        }
        changed = {key: value for key, value in parsed.items() if key in self.plain}
        for key, thing in self.chosen.items():
            own = {name: parsed[name] for name in own_options(type(thing)) if name in parsed}
            with blaming(f"{key}={thing.name}", type(thing)):
                changed[key] = dataclasses.replace(thing, **own) if own else thing
        return self.schema(**{**self.defaults, **changed, **pieces})

    def _full(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name == DOWN and key not in self.plain else key


class Tables:
    """All tables of a configuration: the unnamed one of the method itself and those of its pieces."""

    def __init__(self, schema: Any, words: Words) -> None:
        """`words` are all given keys, including those of other schemas. Choices among them determine the valid keys."""
        self.schema = schema
        # Defaults of the fields, not of the instance: an instance may already have computed some of its values.
        defaults = {field.name: field.default for field in dataclasses.fields(schema)}
        tables = [field.name for field in dataclasses.fields(schema) if is_table(field)]
        self.tables = {"": Table("", schema, defaults)}
        for name in tables:
            piece: Any = defaults[name]
            own = {field.name: getattr(piece, field.name) for field in dataclasses.fields(piece) if field.init}
            self.tables[name] = Table(name, type(piece), own)
        asked: set[Place] = set()
        for word, value in in_order(words):
            for name, key in self.places(word):
                if key in self.tables[name].choices:
                    self.tables[name].choose(key, value)
                    asked.add((name, key))
        self._follow(asked)

    def _follow(self, asked: set[Place]) -> None:
        """Make the choices that follow from others, see `implied` of the schema."""
        implied: Callable[[Mapping[Place, Any]], Mapping[Place, str]] = getattr(
            self.schema, "implied", lambda chosen: {}
        )
        chosen = {(name, key): thing for name, each in self.tables.items() for key, thing in each.chosen.items()}
        for (name, key), value in implied(chosen).items():
            if (name, key) in asked:
                found = chosen[name, key].name
                raise ConfigError(f"{full_name((name, key))}={found} does not go with the other choices: use {value}")
            self.tables[name].choose(key, value)

    def places(self, word: str) -> list[Place]:
        """What a word can refer to: one place, none if it is unknown, several if it is ambiguous."""
        name, dot, key = word.partition(".")
        if dot:
            return [(name, key)] if name in self.tables and key in self.tables[name].options() else []
        found = [(name, word) for name, each in self.tables.items() if name != DOWN and word in each.options()]
        if not found and DOWN in self.tables:
            key = word.removeprefix(f"{DOWN}_")
            known = self.tables[DOWN].plain if key == word else self.tables[DOWN].options()
            found = [(DOWN, key)] if key in known else []
        return found

    def knows(self, word: str) -> bool:
        return bool(self.places(word))

    def hindered(self, word: str) -> str | None:
        """The choice with which a key that this configuration has is not an option."""
        name = word.rpartition(".")[2]
        for each in self.tables.values():
            if name in each.conditions and name not in each.options():
                key, _ = each.conditions[name]
                return f"{key}={each.chosen[key].name}"
        return None

    def owners(self, word: str) -> list[str]:
        """Choices that would add this key, e.g. `codec=eden`."""
        word = word.rpartition(".")[2].removeprefix(f"{DOWN}_")
        found = []
        for each in self.tables.values():
            for key, field in each.choices.items():
                registry, accepts = REGISTRIES[field.metadata["kind"]], field.metadata["accepts"]
                things = {name: registry.find(name) for name in registry.names()}
                fitting = (name for name, thing in things.items() if accepts is None or accepts(thing))
                found += [f"{key}={name}" for name in fitting if word in own_options(things[name])]
        return sorted(set(found))

    def words(self) -> list[str]:
        """Every word that is valid under the current choices."""
        return [
            f"{name}_{key}" if name == DOWN and key not in each.plain else key
            for name, each in self.tables.items()
            for key in each.options()
        ]

    def build(self, values: Words) -> Any:
        """Build the configuration: the defaults, overridden by these values."""
        sorted_values: dict[str, dict[str, Any]] = {name: {} for name in self.tables}
        for word, value in in_order(values):
            places = self.places(word)
            if not places:
                raise ConfigError(f"unknown key {word!r}: {nearest(word, self.words())}")
            if len(places) > 1:
                meant = " or ".join(map(full_name, places))
                raise ConfigError(f"{word}={value!r} can mean two things: write {meant}")
            (name, key) = places[0]
            sorted_values[name][key] = value
        pieces = {name: each.build(sorted_values[name], {}) for name, each in self.tables.items() if name}
        return self.tables[""].build(sorted_values[""], pieces)


def in_order(words: Words) -> Iterable[tuple[str, Any]]:
    return words.items() if isinstance(words, Mapping) else words


def full_name(place: Place) -> str:
    """How a key is written with the name of its table."""
    return ".".join(filter(None, place))


def needs(kind: str, *functions: str) -> Callable[[str, Any], None]:
    """The check of a registry of pieces: a dataclass with defaults and at least one of these functions."""

    def check(name: str, thing: Any) -> None:
        if not isinstance(thing, type) or not is_piece(thing):
            raise ConfigError(f"{kind} {name!r}: needs a class with @dataclass(frozen=True)")
        if not any(callable(getattr(thing, function, None)) for function in functions):
            raise ConfigError(f"{kind} {name!r}: needs a function {' or '.join(functions)}")
        for field in dataclasses.fields(thing):
            if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ConfigError(f"{kind} {name!r}: its option {field.name!r} needs a default")

    return check


def is_table(field: dataclasses.Field[Any]) -> bool:
    return "kind" not in field.metadata and is_piece(field.default)


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn {"up": {"codec": "eden"}} into {"up.codec": "eden"}. Tables of a TOML file have the first form."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[key] = value
    return flat


def as_words(configuration: Any) -> dict[str, Any]:
    """The configuration as nested tables of plain values, from which `Tables.build` builds the same configuration."""
    words: dict[str, Any] = {}
    for field in dataclasses.fields(configuration):
        value = getattr(configuration, field.name)
        if "kind" in field.metadata:
            words |= {field.name: value.name, **as_words(value)}
        elif is_piece(value):
            words[field.name] = as_words(value)
        elif (
            field.init
            and field.repr
            and not (value is None and field.default is None)
            and _counts(field, configuration)
        ):
            words[field.name] = _as_word(value)
    return words


def _counts(field: dataclasses.Field[Any], configuration: Any) -> bool:
    """Whether the field is an option next to what was chosen beside it."""
    key, fits = field.metadata.get("only_with", ("", bool))
    return not key or fits(getattr(configuration, key))


def _as_word(value: Any) -> Any:
    """A value that a TOML file, a command line and Flower's run configuration can all represent."""
    if isinstance(value, tuple):
        return ",".join(map(repr, value))
    return "none" if value is None else value

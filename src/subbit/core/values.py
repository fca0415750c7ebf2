"""Parse text and TOML into typed values. Errors name the key and the closest valid one.

A configuration is a flat set of keys. Values come from TOML (already typed) or from `key=value` words (text). Both are
checked against the type of the dataclass field. Nothing is corrected: a value of the wrong type is an error.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from subbit.core.errors import ConfigError
from subbit.core.imported import is_imported
from subbit.core.registry import REGISTRIES
from subbit.core.registry import nearest as nearest

DataclassType = TypeVar("DataclassType")


def named(kind: str, default: str) -> Any:
    """A field that takes the name of a registered component of that kind."""
    return dataclasses.field(default=default, metadata={"kind": kind})


def several(kind: str) -> Any:
    """A field that takes the names of any number of such components, or of functions (`package.module:name`).

    It is text with commas between the names, since Flower's configuration has no lists; a TOML list becomes that.
    """
    return dataclasses.field(default=None, metadata={"kind": kind, "several": True})


def split_names(text: str | None) -> list[str]:
    """The names in a field of `several`.

    >>> split_names("tensorboard, mlflow,")
    ['tensorboard', 'mlflow']
    """
    return list(dict.fromkeys(filter(None, (name.strip() for name in (text or "").split(",")))))


def field_types(schema: type) -> dict[str, Any]:
    """Name and declared type of the fields that a user may set."""
    return dict(_field_types(schema))


@cache
def _field_types(schema: type) -> dict[str, Any]:
    """Evaluating annotations takes a millisecond, and resolving a run asks for some hundred of them."""
    hints = get_type_hints(schema)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema)}


def parse_value(key: str, value: Any, declared: Any) -> Any:
    """Convert `value` to the declared type. Text is parsed; other values must already have the type."""
    options = get_args(declared) if get_origin(declared) in (Union, types.UnionType) else (declared,)
    for option in sorted(options, key=lambda each: each is not type(None)):  # Before text: "none" is none.
        accepted, result = _fit(value, option)
        if accepted:
            return result
    raise ConfigError(f"{key}={value!r}: needs {' or '.join(_describe(option) for option in options)}")


def _fit(value: Any, option: Any) -> tuple[bool, Any]:
    text = isinstance(value, str)
    if get_origin(option) is Literal:
        for choice in get_args(option):
            if value == choice or (text and value == str(choice)):
                return True, choice
        return False, None
    if option is type(None):
        return (value is None or (text and value.lower() in ("none", "")), None)
    if option is bool:
        if text and value.lower() in ("true", "false"):
            return True, value.lower() == "true"
        return isinstance(value, bool), value
    if option is str:
        return text, value
    if get_origin(option) is tuple:
        return _fit_tuple(value, get_args(option))
    if isinstance(value, bool):
        return False, None  # In Python a bool is an int; for users it is not.
    try:
        if option is int:
            return (True, int(value)) if text or isinstance(value, int) else (False, None)
        if option is float:
            return (True, float(value)) if text or isinstance(value, int | float) else (False, None)
    except ValueError:
        return False, None
    raise TypeError(f"no reader for fields of type {option!r}")


def _fit_tuple(value: Any, options: tuple[Any, ...]) -> tuple[bool, Any]:
    """Comma-separated numbers, or a TOML list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or len(parts) != len(options):
        return False, None
    fitted = [_fit(part, option) for part, option in zip(parts, options, strict=True)]
    return all(accepted for accepted, _ in fitted), tuple(result for _, result in fitted)


def _describe(option: Any) -> str:
    if get_origin(option) is tuple:
        return f"{len(get_args(option))} numbers with commas between them"
    if get_origin(option) is Literal:
        return "one of " + ", ".join(str(word) for word in get_args(option))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    return names[option]


def build(schema: type[DataclassType], values: dict[str, Any]) -> DataclassType:
    """Build the dataclass from its defaults and these values. Its `__post_init__` checks ranges."""
    declared = field_types(schema)
    metadata = {field.name: field.metadata for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    parsed = {}
    for key, value in values.items():
        if key not in declared:
            raise ConfigError(f"unknown key {key!r}: {nearest(key, list(declared))}")
        parsed[key] = parse_value(key, _joined(value) if "several" in metadata[key] else value, declared[key])
        if "kind" in metadata[key]:
            _refuse_unknown(key, parsed[key], metadata[key])
    return schema(**parsed)


def _joined(value: Any) -> Any:
    names = isinstance(value, list | tuple) and all(isinstance(name, str) and "," not in name for name in value)
    return ",".join(value) if names else value


def _refuse_unknown(key: str, value: Any, metadata: Mapping[str, Any]) -> None:
    several = "several" in metadata
    for name in split_names(value) if several else [value]:
        if several and is_imported(name):
            continue  # Imported where it is needed: on Flower's server, and not on its nodes.
        registry = REGISTRIES[metadata["kind"]]
        if name not in registry:
            raise ConfigError(f"{key}={name!r}: {nearest(name, registry.names())}")


def split_assignment(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"{word!r}: expected key=value")
    return key.strip(), value.strip()


def require(condition: bool, message: str) -> None:
    """Raise a `ConfigError` with this message, which names the key, its value and what is needed."""
    if not condition:
        raise ConfigError(message)

"""Resolve a run: defaults, then the method's preset, then the file, then `key=value` words; the last one wins.

In a TOML file, keys at the top level belong to the run or to its method; a table named after a method holds keys for
that method alone, so that one file can serve a comparison of several methods.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from subbit.config.schema import RunConfig
from subbit.config.values import build, field_types, nearest, split_assignment
from subbit.core.plugins import NONE, needed_plugins
from subbit.errors import ConfigError
from subbit.methods.registry import METHODS, find_method, method_names


@dataclass(frozen=True)
class Settings:
    """A resolved run: its own keys and the parameters of its method."""

    run: RunConfig
    parameters: Any


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no file {str(path)!r}: give the path of a TOML file, or none for the defaults") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None


def resolve(file_values: Mapping[str, Any], words: Iterable[str] = (), others: Iterable[str] = ()) -> Settings:
    """The settings of one run.

    `others` are methods that share the file and the words (in a comparison): a key that belongs to one of them alone
    is skipped here.
    """
    values = {key: value for key, value in file_values.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in file_values.items() if isinstance(value, dict)}
    assigned = dict(split_assignment(word) for word in words)
    plugins = needed_plugins(assigned.get("plugins", values.get("plugins")))  # Before any name is looked up.
    for table in tables:
        if table not in METHODS:
            raise ConfigError(f"unknown table [{table}]: {nearest(table, method_names())}")
    method = find_method(str(assigned.get("method", values.get("method", RunConfig.method))))
    merged = {**values, **tables.get(method.name, {}), **assigned, "plugins": plugins}

    run_keys, own_keys = field_types(RunConfig), field_types(method.Parameters)
    foreign = {key for other in others for key in field_types(find_method(other).Parameters)}
    for key in merged:
        if key not in run_keys and key not in own_keys and key not in foreign:
            raise ConfigError(f"unknown key {key!r} for method {method.name!r}: {nearest(key, [*run_keys, *own_keys])}")
    run = build(RunConfig, {key: value for key, value in merged.items() if key in run_keys})
    preset = method.presets[run.preset]
    own = {**preset, **{key: value for key, value in merged.items() if key in own_keys}}
    return Settings(run, build(method.Parameters, own))


def resolve_recorded(values: Mapping[str, Any]) -> Settings:
    """The settings that `write_toml` wrote: a plugin that they do not name is none of theirs."""
    return resolve({"plugins": NONE, **values})


def write_toml(settings: Settings) -> str:
    """The resolved settings as a file that gives the same run again."""

    def table(instance: Any) -> dict[str, Any]:
        return {key: value for key, value in dataclasses.asdict(instance).items() if value is not None}

    return tomli_w.dumps({**table(settings.run), settings.run.method: table(settings.parameters)})

"""Resolve a run: defaults, then the method's preset, then the file, then `key=value` words; the last one wins.

In a TOML file, keys at the top level belong to the run or to its method. [map], [local], [up], [down] and [aggregate]
hold options of these components. A table named after a method holds keys for that method only, so that one file can
serve a comparison of several methods.
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
from subbit.core.errors import ConfigError
from subbit.core.pieces import Tables, as_words, flattened
from subbit.core.plugins import NONE, needed_plugins
from subbit.core.values import build, field_types, nearest, split_assignment
from subbit.methods.names import find_method, method_names

PIECES = ("map", "mask", "pruning", "local", "up", "down", "aggregate")
"""The tables of methods; `mask` belongs to gradmask, `pruning` to fedmask."""


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

    `others` are the contenders of a comparison that share the file and the words, e.g. `fedavg:codec=topk`. A key
    that only one of them knows is skipped.
    """
    assigned = dict(split_assignment(word) for word in words)
    # Before any name is looked up.
    plugins = needed_plugins(assigned.get("plugins", file_values.get("plugins")))
    tables = {key: value for key, value in file_values.items() if key in method_names() and isinstance(value, dict)}
    for name, value in file_values.items():
        if isinstance(value, dict) and name not in (*tables, *PIECES):
            raise ConfigError(f"unknown table [{name}]: {nearest(name, [*method_names(), *PIECES])}")
    values = flattened({key: value for key, value in file_values.items() if key not in tables})
    method = find_method(str(assigned.get("method", values.get("method", RunConfig.method))))
    merged = {**values, **flattened(tables.get(method.name, {})), **assigned, "plugins": plugins}

    run_keys = field_types(RunConfig)
    run = build(RunConfig, {key: value for key, value in merged.items() if key in run_keys})
    given = {key: value for key, value in merged.items() if key not in run_keys}
    preset = {**method.words, **method.presets[run.preset]}
    pieces = Tables(method.Parameters, {**preset, **given})
    foreign = [_tables_of(other, given) for other in others]
    for key in given:
        if not pieces.knows(key) and not any(other.knows(key) for other in foreign):
            owners = pieces.owners(key)
            hint = f"it belongs to {' or '.join(owners)}" if owners else nearest(key, [*run_keys, *pieces.words()])
            raise ConfigError(f"unknown key {key!r} for method {method.name!r}: {hint}")
        if key in method.words and given[key] != method.words[key]:
            raise ConfigError(
                f"{key}={given[key]!r}: method={method.name} is {key}={method.words[key]}; see `subbit list`"
            )
    # Options of a component in the preset do not apply if another component was chosen.
    chosen = {key: value for key, value in {**preset, **given}.items() if pieces.knows(key)}
    return Settings(run, pieces.build(chosen))


def _tables_of(contender: str, given: Mapping[str, Any]) -> Tables:
    """The keys that a contender knows, given its own and the common choices."""
    name, _, words = contender.partition(":")
    method = find_method(name)
    own = dict(split_assignment(word) for word in words.split(",") if "=" in word)
    return Tables(method.Parameters, {**given, **method.words, **own})


def resolve_recorded(values: Mapping[str, Any]) -> Settings:
    """The settings written by `write_toml`; plugins that they do not name are not used."""
    return resolve({"plugins": NONE, **values})


def write_toml(settings: Settings) -> str:
    """The resolved settings as a file that reproduces the run."""
    run = {key: value for key, value in dataclasses.asdict(settings.run).items() if value is not None}
    return tomli_w.dumps({**run, settings.run.method: as_words(settings.parameters)})

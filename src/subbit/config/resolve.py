"""Resolve a run: defaults, then the method's preset, then the file, then `key=value` words; the last one wins.

In a TOML file, keys at the top level belong to the run or to its method. A key of the run that an option of a chosen
component has too is written with its table: `run.alpha` or `local.alpha`. [map], [local], [up], [down] and [aggregate]
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

from subbit.config.meanings import RUN, hint, refuse_lost_privacy, refuse_other_method, refuse_two_meanings
from subbit.config.schema import RunConfig
from subbit.core.errors import ConfigError
from subbit.core.imported import is_imported
from subbit.core.pieces import Tables, as_words, flattened
from subbit.core.plugins import NONE, needed_plugins
from subbit.core.values import build, field_types, nearest, require, split_assignment
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
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder: give the path of a TOML file; subbit init --data {path} writes one, if these are data"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None


def resolve(file_values: Mapping[str, Any], words: Iterable[str] = (), others: Iterable[str] = ()) -> Settings:
    """The settings of one run. `others`: see `resolve_contender`."""
    return resolve_contender(file_values, words, others)[0]


def resolve_contender(
    file_values: Mapping[str, Any], words: Iterable[str], others: Iterable[str], own: Iterable[str] = ()
) -> tuple[Settings, tuple[str, ...]]:
    """The settings of one run, and the keys that were skipped.

    `others` are the contenders of a comparison that share the file and the words, e.g. `fedavg:codec=topk`. A key
    that only one of them knows is skipped, except for privacy. `own` are words of this contender alone: it must know
    them, and they say nothing about what the others know.
    """
    for_it = [split_assignment(word) for word in own]
    assigned = [*map(split_assignment, words), *for_it]
    # Before any name is looked up.
    plugins = needed_plugins(_last([*file_values.items(), *assigned], "plugins"))
    tables = {key: value for key, value in file_values.items() if key in method_names() and isinstance(value, dict)}
    for name, value in file_values.items():
        if isinstance(value, dict) and name not in (*tables, *PIECES, RUN):
            raise ConfigError(f"unknown table [{name}]: {nearest(name, [*method_names(), *PIECES])}")
    common = list(flattened({key: value for key, value in file_values.items() if key not in tables}).items())
    method = find_method(str(_last([*common, *assigned], "method") or RunConfig.method))
    everything = [*common, *flattened(tables.get(method.name, {})).items(), *assigned, ("plugins", plugins)]

    run_keys = field_types(RunConfig)
    of_run = {word: word.removeprefix(f"{RUN}.") for word, _ in everything}
    of_the_run = {of_run[word]: value for word, value in everything if of_run[word] in run_keys}
    _keep_own_head(of_the_run)
    if of_the_run.get("objective", RunConfig.objective) != RunConfig.objective:
        of_the_run.setdefault("partition", "iid")  # The usual default divides classes, which only the usual one has.
    run = build(RunConfig, of_the_run)
    given = [(word, value) for word, value in everything if of_run[word] not in run_keys]
    require(
        run.preset in method.presets,
        f"preset={run.preset}: method {method.name!r} has only {', '.join(method.presets)}",
    )
    preset = [*method.words.items(), *method.presets[run.preset].items()]
    pieces = Tables(method.Parameters, [*preset, *given])
    refuse_two_meanings(method.name, pieces, everything, run_keys)
    refuse_other_method(method, pieces, given)
    shared = given[: len(given) - sum(of_run[word] not in run_keys for word, _ in for_it)]
    foreign = [_tables_of(other, shared) for other in others]
    skipped: dict[str, Any] = {}
    for key, value in given:
        if not pieces.knows(key):
            if key in dict(for_it) or not any(other.knows(key) for other in foreign):
                raise ConfigError(f"unknown key {key!r} for method {method.name!r}: {hint(key, pieces, run_keys)}")
            skipped[key] = value
    refuse_lost_privacy(method.name, skipped)
    # Options of a component in the preset do not apply if another component was chosen.
    chosen = [(key, value) for key, value in [*preset, *given] if pieces.knows(key)]
    return Settings(run, pieces.build(chosen)), tuple(skipped)


def _keep_own_head(given: dict[str, Any]) -> None:
    """Only classifiers are fitted a head by default; a module of one's own has one, as in `subbit.fine_tune`."""
    if given.get("objective", RunConfig.objective) != RunConfig.objective or is_imported(str(given.get("model", ""))):
        given.setdefault("head", "keep")


def _last(pairs: list[tuple[str, Any]], key: str) -> Any:
    """The last value of a key of the run."""
    return next((value for word, value in reversed(pairs) if word in (key, f"{RUN}.{key}")), None)


def contender_words(contender: str) -> tuple[str, list[str]]:
    """The method and the words of a contender. A value may have commas: `fedavg:optimizer=adam,betas=0.8,0.9`.

    >>> contender_words("fedavg:optimizer=adam,betas=0.8,0.9,epochs=2")
    ('fedavg', ['optimizer=adam', 'betas=0.8,0.9', 'epochs=2'])
    """
    method, _, text = contender.partition(":")
    words: list[str] = []
    for part in filter(None, text.split(",")):
        if "=" in part or not words:
            words.append(part)
        else:
            words[-1] += f",{part}"
    return method, words


def _tables_of(contender: str, given: list[tuple[str, Any]]) -> Tables:
    """The keys that a contender knows, given its own and the common choices."""
    name, words = contender_words(contender)
    method = find_method(name)
    own = [split_assignment(word) for word in words]
    return Tables(method.Parameters, [*given, *method.words.items(), *own])


def resolve_recorded(values: Mapping[str, Any]) -> Settings:
    """The settings written by `write_toml`; plugins that they do not name are not used."""
    return resolve({"plugins": NONE, **values})


def same_job(one: Settings, other: Settings) -> bool:
    """Whether a run with the first settings may go on with the second: trackers only watch it."""
    return with_track(one, None) == with_track(other, None)


def with_track(settings: Settings, track: str | None) -> Settings:
    return dataclasses.replace(settings, run=dataclasses.replace(settings.run, track=track))


def write_toml(settings: Settings) -> str:
    """The resolved settings as a file that reproduces the run."""
    run = {key: value for key, value in dataclasses.asdict(settings.run).items() if value is not None}
    return tomli_w.dumps({**run, settings.run.method: as_words(settings.parameters)})

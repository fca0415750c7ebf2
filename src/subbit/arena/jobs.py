"""Jobs of the arena: TOML files that name the common keys, the methods and the settings that each may try.

what = "one line"
minutes = 3.0               of one run, as long as none is measured
seeds = 3
tuning_seed = 1000          settings are compared on a split of their own
validation = 0.2            share of each client's training examples that settings are compared on
[base]                      keys of all runs, as in the file of a run
[methods.NAME]
run = "fedpeft:tuning=lora" a contender of `subbit compare`; without it: NAME
settings = ["learning_rate=0.01", "learning_rate=0.001,epochs=2"]    at most four
after = "standalone"        a second run that starts from the network of the first; its result counts
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subbit.config.resolve import Settings, contender_words, read_toml, resolve
from subbit.config.schema import NAME_PATTERN
from subbit.core.errors import ConfigError
from subbit.core.values import build, nearest, require
from subbit.report.baselines import expand
from subbit.report.compare import parse_contender

MOST_SETTINGS = 4
"""Every method has the same chance."""
NO_MATTER = ("workers", "cache_gb", "folder")
"""Keys that do not change a result."""


@dataclass(frozen=True)
class Header:
    """The keys of a job's file outside its tables."""

    what: str = ""
    needs: str = ""
    """What must be on the machine, for people."""
    minutes: float = 3.0
    seeds: int = 3
    tuning_seed: int = 1000
    validation: float = 0.2

    def __post_init__(self) -> None:
        require(self.minutes > 0, f"minutes={self.minutes}: needs a number above 0")
        require(self.seeds >= 1, f"seeds={self.seeds}: needs at least 1")
        require(self.tuning_seed >= self.seeds, f"tuning_seed={self.tuning_seed}: needs a seed that no run has")
        require(0 < self.validation < 1, f"validation={self.validation}: needs a share between 0 and 1")


@dataclass(frozen=True)
class Entry:
    """One method of a job."""

    label: str
    run: str
    settings: tuple[str, ...] = ("",)
    """Words to try, with commas between them."""
    after: str = ""

    def texts(self, setting: str) -> list[str]:
        """The contenders to run, one after the other."""
        joined = f"{self.run}{',' if ':' in self.run else ':'}{setting}" if setting else self.run
        return [expand(text) for text in (joined, self.after) if text]


@dataclass(frozen=True)
class Job:
    name: str
    header: Header
    base: dict[str, Any] = field(hash=False)
    entries: dict[str, Entry] = field(hash=False)

    def entry(self, label: str) -> Entry:
        if label not in self.entries:
            raise ConfigError(f"job {self.name}: no method {label!r}: {nearest(label, [*self.entries])}")
        return self.entries[label]

    def resolve(self, text: str, words: Sequence[str]) -> Settings:
        """The settings of one run."""
        method, own = contender_words(text)
        return resolve(self.base, [*own, f"run.method={method}", f"run.name=arena-{self.name}", *words])

    def fingerprint(self, entry: Entry) -> str:
        """Of everything that a result of this entry depends on, except the settings tried and the seeds."""
        base = {key: value for key, value in self.base.items() if key not in NO_MATTER}
        about = [base, entry.texts(""), self.header.tuning_seed, self.header.validation]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def read_job(path: Path) -> Job:
    values = read_toml(path)
    base, methods = (_table(values, key, path) for key in ("base", "methods"))
    try:
        header = build(Header, values)
        entries = {label: _entry(label, given, path) for label, given in methods.items()}
        require(len(entries) > 0, "[methods.NAME]: needs at least one")
        job = Job(path.stem, header, base, entries)
        for entry in entries.values():
            for setting in entry.settings:
                for text in entry.texts(setting):
                    parse_contender(text)
                    job.resolve(text, [])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return job


def _table(values: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    found = values.pop(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: {key} is {found!r}; needs a table [{key}]")
    return found


def _entry(label: str, given: Any, path: Path) -> Entry:
    unknown = {*given} - {"run", "settings", "after"} if isinstance(given, dict) else {"?"}
    if unknown or NAME_PATTERN.fullmatch(label) is None:
        raise ConfigError(f"[methods.{label}]: needs a plain name and the keys run, settings and after only")
    settings = tuple(given.get("settings", [""]))
    require(
        1 <= len(settings) <= MOST_SETTINGS and len({*settings}) == len(settings),
        f"[methods.{label}]: {len(settings)} settings; needs 1 to {MOST_SETTINGS} different ones",
    )
    return Entry(label, str(given.get("run", label)), settings, str(given.get("after", "")))


def read_jobs(folder: Path) -> dict[str, Job]:
    found = {path.stem: read_job(path) for path in sorted(folder.glob("*.toml"))}
    if not found:
        raise ConfigError(f"{folder}: found no job; needs TOML files such as experiments/arena/vision.toml")
    return found

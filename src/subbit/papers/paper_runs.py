"""Runs of a protocol at a scale: their settings, which are missing, and making them one after the other.

Results are SCALE/NNN/NAME.json in the folder of results, written after every run. A run is known by a hash of its
settings, so that a change of a protocol makes only the results void that depend on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from subbit.config.resolve import Settings, contender_words, resolve, write_toml
from subbit.core.errors import ConfigError, RunFolderError, SubbitError
from subbit.core.files import replace_file
from subbit.core.values import split_assignment
from subbit.papers.protocols import Protocol, Scale
from subbit.report.baselines import expand
from subbit.report.compare import parse_contender

NO_MATTER = ("name", "folder", "workers", "cache_gb", "plugins")
"""Keys that do not change a result."""
KEPT = (
    *("score_name", "score", "score_before", "score_expected", "score_sampled", "score_thresholded", "score_by_round"),
    *("uplink_bpp", "downlink_bpp", "uplink_bytes", "downlink_bytes", "one_off_bytes", "total_bytes", "parameters"),
    *(
        "participants",
        "clients",
        "rounds",
        "split",
        "flips_kept_per_upload",
        "false_flips_per_upload",
        "failed_clients",
    ),
    *("sensitivity", "deviation"),
)
Found = dict[str, Any]


@dataclass(frozen=True)
class PaperRun:
    protocol: Protocol
    scale: str
    row: str
    column: str
    seed: int

    def __str__(self) -> str:
        where = f", {self.column}" if self.column else ""
        return f"{self.protocol.paper} {self.protocol.runs_in} {self.scale}: {self.row}{where}, seed {self.seed}"

    @cached_property
    def settings(self) -> Settings:
        found = _settings(self.protocol.path, self.scale, self.row, self.column, self.protocol)
        return replace(found, run=replace(found.run, seed=self.seed))

    def resolved(self) -> Settings:
        """Base, column and scale are merged in this order; words of the row stand unless the scale replaces them."""
        protocol, scale = self.protocol, self.protocol.scales[self.scale]
        column = {key: value for key, value in protocol.columns[self.column].items() if key not in ("missing", "via")}
        smaller = _deep(scale.base, scale.columns.get(self.column, {}))
        own = scale.words.get(self.row, {})
        contender = expand(protocol.rows[self.row].run)
        parse_contender(contender)
        method, words = contender_words(contender)
        replaced = {key.removeprefix("run.") for key in (*smaller, *own, *smaller.get(method, {}))}
        kept = [word for word in words if split_assignment(word)[0].removeprefix("run.") not in replaced]
        kept += [f"{key}={value}" for key, value in own.items()]
        name = f"paper-{protocol.paper}-{protocol.runs_in}"
        try:
            return resolve(
                _deep(_deep(protocol.base, column), smaller),
                [*kept, f"run.method={method}", f"run.name={name}"],
            )
        except ConfigError as error:
            raise ConfigError(f"{protocol.path}: {self.row}, {self.column or 'all'}, {self.scale}: {error}") from None

    @cached_property
    def fingerprint(self) -> str:
        """Of what differs from the method's defaults: a key that is added later does not make results void."""
        usual = _defaults(self.settings.run.method)
        lines = [line for line in write_toml(self.settings).splitlines() if line.split(" ")[0] not in NO_MATTER]
        lines = [self.settings.run.method, *(line for line in lines if line not in usual)]
        lines += [json.dumps(self.protocol.columns[self.column].get("via", {}))]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@cache
def _defaults(method: str) -> frozenset[str]:
    return frozenset(write_toml(resolve({}, [f"run.method={method}"])).splitlines())


_KNOWN: dict[tuple[Path, str, str, str], tuple[Protocol, Settings]] = {}


def _settings(path: Path, scale: str, row: str, column: str, protocol: Protocol) -> Settings:
    """Resolved once for all seeds, as long as the protocol is the same object."""
    key = (path, scale, row, column)
    if key not in _KNOWN or _KNOWN[key][0] is not protocol:
        _KNOWN[key] = protocol, PaperRun(protocol, scale, row, column, 0).resolved()
    return _KNOWN[key][1]


def _deep(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _deep(found[key], value) if both else value
    return found


def planned(protocol: Protocol, scale: str, seeds: int | None = None) -> list[PaperRun]:
    """All runs of a protocol at a scale, those of one seed before those of the next."""
    chosen = protocol.scales.get(scale)
    if chosen is None or chosen.none or protocol.header.drawing:
        return []
    count = seeds or chosen.seeds or protocol.header.seeds
    return [
        PaperRun(protocol, scale, row, column, protocol.header.first_seed + number)
        for number in range(count)
        for row, column in cells_run(protocol, chosen)
    ]


def cells_run(protocol: Protocol, scale: Scale) -> list[tuple[str, str]]:
    """Rows that are a reading of something run only where they are asked for."""
    rows = [row for row in protocol.rows if scale.only_rows is None or row in scale.only_rows]
    columns = [column for column in protocol.columns if scale.only_columns is None or column in scale.only_columns]
    wanted = {(row, reading.column) for reading in protocol.claims.readings for row in reading.rows}
    return [
        (row, column)
        for row in rows
        for column in columns
        if not protocol.missing(row, column) and (not protocol.rows[row].reading or (row, column) in wanted)
    ]


def record_path(folder: Path, protocol: Protocol, scale: str) -> Path:
    return folder / scale / protocol.paper / f"{protocol.runs_in}.json"


def read_runs(folder: Path, protocol: Protocol, scale: str) -> list[Found]:
    """What is known, whatever its settings were."""
    path = record_path(folder, protocol, scale)
    if not path.is_file():
        return []
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        good = isinstance(runs, list) and all(isinstance(run, dict) and "fingerprint" in run for run in runs)
    except (ValueError, TypeError, KeyError):
        good = False
    if not good:
        raise RunFolderError(f"{path}: not a result of subbit paper; remove it, and the runs are made again")
    return list(runs)


def missing_runs(folder: Path, protocols: Iterable[Protocol], scale: str, seeds: int | None = None) -> list[PaperRun]:
    """Of several protocols, some of which may share runs: each once."""
    found: dict[str, PaperRun] = {}
    for protocol in protocols:
        known = {run["fingerprint"] for run in read_runs(folder, protocol, scale)}
        for run in planned(protocol, scale, seeds):
            if run.fingerprint not in known:
                found.setdefault(f"{record_path(folder, protocol, scale)} {run.fingerprint}", run)
    return [*found.values()]


def make_run(folder: Path, run: PaperRun, how: Callable[[Settings], Mapping[str, Any]] | None = None) -> Found:
    """Make it and add it to the record. The error of a run that cannot be made is returned, not kept."""
    started, computed = time.monotonic(), _computed()
    found: Found = {"row": run.row, "column": run.column, "seed": run.seed, "fingerprint": run.fingerprint}
    try:
        summary = how(run.settings) if how is not None else _made(run)
        found |= {key: summary[key] for key in KEPT if summary.get(key) is not None}
    except SubbitError as error:
        found["error"] = str(error)
    found |= {"wall": round(time.monotonic() - started, 1), "cpu": round(_computed() - computed, 1)}
    if "error" in found:
        return found  # E.g. a data set that is not there: the next call tries again.
    path = record_path(folder, run.protocol, run.scale)
    known = [each for each in read_runs(folder, run.protocol, run.scale) if each["fingerprint"] != run.fingerprint]
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"protocol": run.protocol.label, "scale": run.scale, "runs": [*known, found]}
    replace_file(path, (json.dumps(record, indent=1) + "\n").encode())
    return found


def _made(run: PaperRun) -> Mapping[str, Any]:
    from subbit.papers.via import WAYS

    return WAYS[run.protocol.rows[run.row].via](run.settings, **run.protocol.columns[run.column].get("via", {}))


def _computed() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def run_missing(
    folder: Path,
    runs: Iterable[PaperRun],
    budget: float | None,
    tell: Callable[[str], None],
    how: Callable[[Settings], Mapping[str, Any]] | None = None,
) -> Iterator[Found]:
    """No run starts that would end after the budget in seconds, by what the last one of the protocol took."""
    started, took = time.monotonic(), 0.0
    for run in runs:
        if budget is not None and time.monotonic() - started + took > budget:
            tell(f"{run}: would exceed the budget; not started")
            return
        tell(str(run))
        found = make_run(folder, run, how)
        took = found["wall"]
        tell(f"  {found.get('error') or _told(found)} in {found['wall']:.0f} s")
        yield found


def _told(found: Found) -> str:
    return f"{found['score_name']} {found['score']:.4f}, {found['uplink_bpp']:.4f} bits per parameter up"

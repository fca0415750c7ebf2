"""Runs the same job for several methods and seeds: one table of scores, bytes in both directions and time."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from subbit.config.resolve import Settings, contender_words, resolve_contender
from subbit.core.errors import ConfigError
from subbit.core.values import split_assignment
from subbit.methods.names import find_method
from subbit.report.baselines import CEILING, added, expand, find_gap, kind
from subbit.report.frontier import scores_by_round

MEGABYTE = 1e6


log = logging.getLogger("subbit")


@dataclass(frozen=True)
class Contender:
    """A method with its own settings, e.g. `deltamask:preset=paper,kappa=0.5`; or a baseline, e.g. `head-alone`."""

    label: str
    method: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The method and its words; a baseline as what it stands for."""
        return f"{self.method}:{','.join(self.words)}"


def parse_contender(text: str) -> Contender:
    method, words = contender_words(expand(text))
    find_method(method)
    _refuse_own_keys(words)
    return Contender(text, method, tuple(words))


def _refuse_own_keys(words: Iterable[str]) -> None:
    for word in words:
        if split_assignment(word)[0].removeprefix("run.") in ("name", "method"):
            raise ConfigError(f"{word}: a comparison names its runs and methods itself; leave it out")


def contender_settings(
    contender: Contender, contenders: Sequence[Contender], values: Mapping[str, Any], words: Sequence[str], seed: int
) -> Settings:
    """Settings of one run of a comparison. A key known only to another contender is skipped; an unknown key is an
    error."""
    return _resolved(contender, contenders, values, words, seed)[0]


def _resolved(
    contender: Contender, contenders: Sequence[Contender], values: Mapping[str, Any], words: Sequence[str], number: int
) -> tuple[Settings, tuple[str, ...]]:
    """Seeds count from the contender's own, the common one, or 0."""
    label = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in contender.label)
    own = [*contender.words, f"run.method={contender.method}"]
    others = [other.text for other in contenders]
    seed = resolve_contender(values, words, others, own)[0].run.seed + number
    return resolve_contender(values, words, others, [*own, f"run.seed={seed}", f"run.name={label}-seed{seed}"])


def with_baselines(contenders: Sequence[Contender], values: Mapping[str, Any], words: Sequence[str]) -> list[Contender]:
    """The floors and ceilings that fit these contenders, then the contenders."""
    own = [*contenders]
    personal = any(find_method(each.method).personal for each in own)
    has_head = all(_resolved(each, own, values, words, 0)[0].run.objective == "classification" for each in own)
    known = {each.label for each in own}
    return [parse_contender(label) for label in added(personal, has_head) if label not in known] + own


def compare(
    contenders: Sequence[Contender],
    values: Mapping[str, Any],
    words: Sequence[str],
    seeds: int,
    target: float | None,
    run: Callable[[Settings], dict[str, Any]],
    try_out: Callable[[Settings], object] = lambda settings: None,
) -> dict[str, Any]:
    """Run everything; `run` turns settings into a summary. `try_out` raises for settings that cannot work."""
    if not contenders:
        raise ConfigError("no method: name those to compare, e.g. subbit compare fedavg deltamask rounds=3")
    if len({contender.label for contender in contenders}) < len(contenders):
        raise ConfigError("the same method with the same settings is named twice")
    _refuse_own_keys(words)
    # Everything is resolved and tried before the first run starts, so that an error is found immediately.
    plan = []
    for contender in contenders:
        for number in range(seeds):
            settings, skipped = _resolved(contender, contenders, values, words, number)
            plan.append((contender, settings))
            if number == 0:
                try_out(settings)
        if skipped:
            log.warning("%s does not have %s: left out there", contender.label, ", ".join(skipped))
    summaries: dict[str, list[dict[str, Any]]] = {contender.label: [] for contender in contenders}
    for contender, settings in plan:
        summaries[contender.label].append(run(settings))
    rows = {label: condense(found, target) for label, found in summaries.items()}
    gap = find_gap(summaries)
    if gap is not None:
        for label, found in summaries.items():
            shares = [gap.share_of(summary["score"]) for summary in found]
            known = [share for share in shares if share is not None]
            rows[label]["gap_closed"] = statistics.fmean(known) if known else None
    return {"target": target, "seeds": seeds, "methods": rows, "runs": summaries}


def condense(summaries: Sequence[Mapping[str, Any]], target: float | None) -> dict[str, Any]:
    """Mean and standard deviation over seeds, from the runs' summaries."""

    def values(name: str) -> list[float]:
        return [float(summary[name]) for summary in summaries if summary.get(name) is not None]

    def mean(name: str) -> float | None:
        found = values(name)
        return statistics.fmean(found) if found else None

    spread = statistics.stdev(values("score")) if len(summaries) > 1 else 0.0
    row: dict[str, Any] = {"score_name": summaries[0]["score_name"]}
    for name in ("score", "accuracy") if row["score_name"] == "accuracy" else ("score",):
        row |= {name: mean("score"), f"{name}_spread": spread, f"{name}_before": mean("score_before")}
    row |= {
        "parameters": summaries[0]["parameters"],
        "uplink_bpp": mean("uplink_bpp"),
        "downlink_bpp": mean("downlink_bpp"),
        "uplink_mb": (mean("uplink_bytes") or 0.0) / MEGABYTE,
        "downlink_mb": (mean("downlink_bytes") or 0.0) / MEGABYTE,
        "one_off_mb": (mean("one_off_bytes") or 0.0) / MEGABYTE,
        "total_mb": (mean("total_bytes") or 0.0) / MEGABYTE,
        "flips_kept_per_upload": mean("flips_kept_per_upload"),
        "false_flips_per_upload": mean("false_flips_per_upload"),
        "link_mbit": summaries[0].get("link_mbit"),
        "link_hours": mean("link_hours"),
        "failed_clients": sum(int(summary["failed_clients"]) for summary in summaries),
        "seconds": mean("seconds"),
    }
    if target is not None:
        reached = [megabytes_to(summary, target) for summary in summaries]
        row["mb_to_target"] = (
            None if None in reached else statistics.fmean(value for value in reached if value is not None)
        )
    return row


def megabytes_to(summary: Mapping[str, Any], target: float) -> float | None:
    """Megabytes in both directions, one-off costs included, until the first score at least as good as the target."""
    higher = summary.get("higher_is_better", True)
    for score, total in zip(scores_by_round(summary), summary["bytes_by_round"], strict=True):
        if score is not None and (score >= target if higher else score <= target):
            return float(total) / MEGABYTE
    return None


def score_cell(row: Mapping[str, Any], seeds: int, digits: int) -> str:
    """A mean and, for more than one seed, its standard deviation."""
    name = "score" if "score" in row else "accuracy"
    spread = f" ± {row[f'{name}_spread']:.{digits}f}" if seeds > 1 else ""
    return f"{row[name]:.{digits}f}{spread}"


def share_cell(share: float | None) -> str:
    """The share of the gap closed; a dash where the ceiling is not above the floor."""
    return "-" if share is None else f"{share:.0%}"


def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """One line per method, about 110 columns wide."""
    target = comparison["target"]
    rows = comparison["methods"]
    has_gap = any("gap_closed" in row for row in rows.values())
    links = {row["link_mbit"] for row in rows.values() if row.get("link_mbit") is not None}
    table = Table(
        title=f"{comparison['seeds']} seed(s). bpp: bits per trained parameter, client and round. MB: whole run",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", overflow="fold", min_width=10)
    headings = [
        next(iter(rows.values())).get("score_name", "accuracy"),
        *(["gap closed"] if has_gap else []),
        "before",
        "up bpp",
        "down bpp",
        "up MB",
        "down MB",
        "once MB",
    ]
    headings += [f"MB to {target:.3g}"] if target is not None else []
    headings += ["hours on " + "/".join(f"{rate:g}" for rate in sorted(links)) + " Mbit/s"] if links else []
    for heading in [*headings, "false flips", "seconds"]:
        table.add_column(heading.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for label, row in rows.items():
        cells = [
            score_cell(row, comparison["seeds"], digits=4),
            *([share_cell(row.get("gap_closed"))] if has_gap else []),
            f"{row.get('score_before', row.get('accuracy_before')):.4f}",
        ]
        sent = [
            f"{row['uplink_bpp']:.4f}",
            f"{row['downlink_bpp']:.3f}",
            f"{row['uplink_mb']:.2f}",
            f"{row['downlink_mb']:.2f}",
            f"{row['one_off_mb']:.2f}",
        ]
        # Training in one place sends nothing; the frames of its one client mean nothing.
        cells += ["-"] * len(sent) if kind(label) == CEILING else sent
        if target is not None:
            cells.append("never" if row["mb_to_target"] is None else f"{row['mb_to_target']:.2f}")
        if links:
            cells.append("-" if row["link_hours"] is None else f"{row['link_hours']:.4f}")
        cells.append("-" if row["false_flips_per_upload"] is None else f"{row['false_flips_per_upload']:.0f}")
        table.add_row(label, *cells, f"{row['seconds']:.0f}")
    return table

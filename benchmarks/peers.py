"""What others published about bytes and scores (`results/peers.json`) beside `subbit` in the arena, for
docs/flagship.md.

Theirs are other networks, tasks and federations. So bytes stand side by side, and scores are not compared.
"""

from __future__ import annotations

import re
import runpy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.arena.jobs import Job, read_jobs
from subbit.arena.races import known

SECTIONS = runpy.run_path(str(Path(__file__).with_name("page_sections.py")))
OURS = "subbit"
MEGABYTE = 1e6
PRINTED = re.compile(r"(?P<score>[\d.]+)% \((?P<megabytes>[\d.]+) MB\)")


@dataclass(frozen=True, kw_only=True)
class Own:
    """`subbit` on a job of the arena: means over seeds."""

    job: str
    what: str
    weights: int
    up: float
    down: float
    """Bytes of a client and round, without what is sent once."""
    rounds: int
    clients: int
    participants: int
    whole: float
    """Bytes of a client in the whole run, both ways, fitting the head included."""
    score: float
    score_name: str
    curve: tuple[tuple[float, float], ...]
    """Bytes of a client and score, at each evaluated round."""


def own_results(jobs: Path, results: Path) -> list[Own]:
    found = []
    for job in read_jobs(jobs).values():
        runs = known(results, job)[OURS].scored if OURS in job.entries else []
        if runs:
            found.append(_own(job, runs))
    return found


def _own(job: Job, runs: Sequence[dict[str, Any]]) -> Own:
    first = runs[0]
    turns = first["participants"] * first["rounds"]

    def mean(key: str) -> float:
        return statistics.fmean(run[key] for run in runs)

    places = [place for place, score in enumerate(first["score_by_round"]) if score is not None]
    curve = [
        tuple(statistics.fmean(run[key][place] for run in runs) for key in ("bytes_by_round", "score_by_round"))
        for place in places
    ]
    return Own(
        job=job.name,
        what=job.header.what.split(":")[0],
        weights=first["parameters"],
        up=mean("uplink_bytes") / turns,
        down=mean("downlink_bytes") / turns,
        rounds=first["rounds"],
        clients=first["clients"],
        participants=first["participants"],
        whole=mean("total_bytes") / first["clients"],
        score=mean("score"),
        score_name=first["score_name"],
        curve=tuple((spent / first["clients"], score) for spent, score in curve),
    )


@dataclass(frozen=True)
class Round:
    """DeComFL's bytes of a client and round, computed from what is sent."""

    perturbations: int
    up: int
    down: int


def decomfl_rounds(peer: dict[str, Any]) -> list[Round]:
    """Up: P scalars for each of K steps. Down: those of the rounds since the client's last turn with a seed for each
    step, and the seeds of this round."""
    about = peer["per_round"]
    size, steps, missed = about["bytes_of_a_number"], about["local_steps"], about["rounds_since_last_turn"]
    return [
        Round(each, size * steps * each, size * (missed * steps * (each + 1) + steps))
        for each in about["perturbations"]
    ]


def printed(text: str) -> tuple[float, float]:
    """Accuracy between 0 and 1, and megabytes."""
    match = PRINTED.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: needs the form '84.02% (0.18 MB)'")
    return float(match["score"]) / 100, float(match["megabytes"])


def peers(found: dict[str, Any]) -> str:
    """The generated section."""
    decomfl, fedkseed = found["peers"]["decomfl"], found["peers"]["fedkseed"]
    about = decomfl["per_round"]
    return "\n\n".join(
        [
            _rounds(found["own"], decomfl, fedkseed),
            "Bytes are those of a client and round. Ours have headers and the broadcasts that a client missed; the "
            "head, which is fitted once, is part of the whole run.",
            f"{_cited(decomfl)} Computed by us from their code, at {about['bytes_of_a_number']} bytes a number, for a "
            f"client in every round, P perturbations and {about['local_steps']} local step, as in the example of their "
            "README. A client that was away is sent what it missed.",
            f"{_cited(fedkseed)} The bound is that of the title; a summary of the paper says that it is for a "
            "round, and the rounds are those of examples in its README. How the bytes split, and the scores, are "
            "in no source that we could read.",
            f"Whole runs of {decomfl['name']}, accuracy and megabytes as they print them:",
            _published(decomfl),
            'Their abstract has megabytes "between the server and a client". The tables do not say whose they are, nor '
            "name rounds and clients. Their curves are pictures, whose values we could not read. Sources and "
            "quotations: `benchmarks/results/peers.json`.",
        ]
    )


def _cited(peer: dict[str, Any]) -> str:
    return f"*{peer['name']}*: {peer['citation']} ([paper]({peer['address']}))."


def _rounds(own: Sequence[Own], decomfl: dict[str, Any], fedkseed: dict[str, Any]) -> str:
    rows = []
    for each in own:
        sent = [f"{each.up:,.0f}", f"{each.down:,.0f}", f"{each.rounds}", f"{each.participants} of {each.clients}"]
        whole = [f"{each.whole / MEGABYTE:.3f}", "measured"]
        rows.append([f"`{OURS}`, *{each.job}*", f"{each.what}, {each.weights:,} weights", *sent, *whole])
    for sizes in decomfl_rounds(decomfl):
        name = f"*{decomfl['name']}*, P = {sizes.perturbations}"
        rows.append([name, "any", f"{sizes.up:,}", f"{sizes.down:,}", "-", "-", "below", "theirs, computed"])
    bound = f"under {fedkseed['per_round']['under_bytes'] / 1000:.0f} kB"
    rounds = " or ".join(map(str, fedkseed["rounds"]))
    rows.append([f"*{fedkseed['name']}*", fedkseed["model"], bound, bound, rounds, "-", "-", "theirs, published"])
    headings = [
        "who",
        "network",
        "bytes up",
        "bytes down",
        "rounds",
        "clients in a round",
        "MB per client, whole run",
        "",
    ]
    return str(SECTIONS["table"](headings, rows))


def _published(decomfl: dict[str, Any]) -> str:
    counts = decomfl["per_round"]["perturbations"]
    rows = []
    for result in decomfl["results"]:
        cells = [cell for count in counts for cell in _cells(result["printed"][str(count)])]
        rows.append([f"{result['model']}, {result['tuning']}", result["task"], *cells])
    headings = [heading for count in counts for heading in (f"P = {count}", "MB")]
    return str(SECTIONS["table"](["network", "task", *headings], rows))


def _cells(text: str) -> list[str]:
    score, megabytes = printed(text)
    return [f"{score:.4f}", f"{megabytes:.2f}"]

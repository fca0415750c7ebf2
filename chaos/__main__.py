"""Chaos tests of real processes: python -m chaos [--seconds 600] [--seed 0] [--only KIND] [--trials N] [--deployment]

Every trial runs a small job in its own folder, disturbs it, and judges the outcome. A run must end in one of three
ways: bit-identical to an undisturbed run; with failures counted by cause, and then identical to a run in which exactly
these turns failed; or with one clear error line. Anything else is a failure: a traceback, a hang, another result, a
leftover process or temporary file, a change to any other file. The folder of a failed trial is kept, and `--only KIND
--seed SEED --trials 1` repeats it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from random import Random

from chaos import disks, kills
from chaos.damage import damage
from chaos.jobs import JOBS, Jobs
from chaos.trial import FAILED, OUTCOMES, SKIPPED, FailedError, Outcome, Skipped, Trial

Kind = Callable[[Trial], Outcome]


def liar(trial: Trial) -> Outcome:
    from chaos.liars import liar

    return liar(trial)


def flower(trial: Trial) -> Outcome:
    from chaos.nodes import flower

    return flower(trial)


def deployment(trial: Trial) -> Outcome:
    from chaos.deployments import deployment

    return deployment(trial)


KINDS: dict[str, tuple[Kind, int]] = {
    "kill": (kills.kill, 6),
    "interrupt": (kills.interrupt, 4),
    "worker": (kills.worker, 1),
    "twice": (kills.twice, 2),
    "disk": (disks.disk, 3),
    "folder": (disks.folder, 4),
    "damage": (damage, 10),
    "liar": (liar, 6),
    "flower": (flower, 3),
}
"""Each with its share of the trials."""


def order(seed: int) -> Iterator[str]:
    """All kinds in their proportions, shuffled, repeated endlessly."""
    for deck in count():
        cards = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
        Random(f"{seed}/{deck}").shuffle(cards)
        yield from cards


def with_deployments(others: Iterator[str]) -> Iterator[str]:
    """One deployment after every forty other trials, which take about as long."""
    while True:
        yield from islice(others, 40)
        yield "deployment"


def attempt(jobs: Jobs, scratch: Path, kind: str, seed: int) -> Outcome:
    """One trial, from creating the canaries to checking them."""
    function = deployment if kind == "deployment" else KINDS[kind][0]
    trial = Trial(jobs, scratch / f"{kind}-{seed}", kind, seed)
    began = time.monotonic()
    try:
        outcome = function(trial)
        trial.look_around()
    except Skipped as skipped:
        outcome = Outcome(SKIPPED, str(skipped))
    except FailedError as failure:
        outcome = Outcome(FAILED, str(failure))
    finally:
        trial.close()
    seconds = time.monotonic() - began
    story = "; ".join(words if len(words) < 400 else f"{words[:400]} ..." for words in trial.story).replace("\n", " / ")
    print(f"{kind:>10} seed {seed:<6} {seconds:6.1f} s  {outcome.name:<9} {story}", flush=True)
    if outcome.name == FAILED:
        print(f"           FAILED: {outcome.words}\n           kept: {trial.folder}", flush=True)
    else:
        trial.remove()
    return outcome


def table(outcomes: dict[str, Counter[str]]) -> str:
    rows = [("kind", "tried", *OUTCOMES)]
    for kind, found in outcomes.items():
        rows.append((kind, str(found.total()), *(str(found[name]) for name in OUTCOMES)))
    total = sum(outcomes.values(), Counter[str]())
    rows.append(("all", str(total.total()), *(str(total[name]) for name in OUTCOMES)))
    return "\n".join("".join(f"{cell:>11}" for cell in row) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="no trial begins later")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; the next one has the next")
    parser.add_argument(
        "--only", choices=[*KINDS, "deployment"], action="append", help="only this kind; may be said again"
    )
    parser.add_argument("--job", choices=list(JOBS), action="append", help="only this job; may be said again")
    parser.add_argument("--trials", type=int, default=sys.maxsize)
    parser.add_argument("--deployment", action="store_true", help="also real SuperLinks and SuperNodes, minutes each")
    parser.add_argument(
        "--folder", type=Path, help="where to work; must be new; one under the system's temporary folder"
    )
    options = parser.parse_args()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # Also if it was started in the background.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if options.folder:
        options.folder.mkdir(parents=True)
    scratch = (options.folder or Path(tempfile.mkdtemp(prefix="subbit-chaos-"))).resolve()
    end = time.monotonic() + options.seconds
    print(f"seed {options.seed}, {options.seconds:g} s, in {scratch}", flush=True)
    jobs = Jobs(scratch / "undisturbed", options.job or tuple(JOBS))
    jobs.warm_up()
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in options.only or KINDS}
    kinds: Iterator[str] = (kind for kind in order(options.seed) if kind in outcomes)
    if options.deployment:
        outcomes["deployment"] = Counter()
    if "deployment" in outcomes:
        others = kinds if len(outcomes) > 1 else iter(())
        kinds = with_deployments(others)
    for seed, kind in zip(range(options.seed, options.seed + options.trials), kinds, strict=False):
        if time.monotonic() > end:
            break
        outcomes[kind][attempt(jobs, scratch, kind, seed).name] += 1
    print(table(outcomes))
    failed = sum(found[FAILED] for found in outcomes.values())
    disks.free_of_mounts(scratch)
    if not failed:
        shutil.rmtree(scratch)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Damaged files of a stopped run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from chaos.trial import EQUAL, LINE, FailedError, Outcome, Trial, clear_line
from chaos.trips import at_change

Damage = Callable[[Path, Random, list[Path]], None]


def flip(path: Path, random: Random, others: list[Path]) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(random.choice((1, 1, 1, 3, 20))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def cut(path: Path, random: Random, others: list[Path]) -> None:
    os.truncate(path, random.randint(0, path.stat().st_size))


def lengthen(path: Path, random: Random, others: list[Path]) -> None:
    with path.open("ab") as file:
        file.write(random.choice((b"\0", b"\n", b"{", b"}\n", b"[" * 100_000, random.randbytes(50))))


def zeros(path: Path, random: Random, others: list[Path]) -> None:
    """Zero a block, as if it was not written before a power cut."""
    data = bytearray(path.read_bytes())
    start = random.randint(0, len(data))
    length = min(len(data) - start, random.choice((8, 512, 4096)))
    data[start : start + length] = bytes(length)
    path.write_bytes(data)


def empty(path: Path, random: Random, others: list[Path]) -> None:
    path.write_bytes(b"")


def remove(path: Path, random: Random, others: list[Path]) -> None:
    path.unlink()


def exchange(path: Path, random: Random, others: list[Path]) -> None:
    """Replace the contents by another file of the run, e.g. the state of another round."""
    path.write_bytes(random.choice(others).read_bytes())


def digit(path: Path, random: Random, others: list[Path]) -> None:
    """Change one digit: the file is still well-formed."""
    data = bytearray(path.read_bytes())
    places = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    if places:
        data[random.choice(places)] = ord(random.choice("0123456789"))
    path.write_bytes(data)


def become_a_folder(path: Path, random: Random, others: list[Path]) -> None:
    path.unlink()
    path.mkdir()


def become_a_link(path: Path, random: Random, others: list[Path]) -> None:
    path.unlink()
    path.symlink_to(path.name)


KINDS: tuple[Damage, ...] = (
    flip, flip, flip, flip, cut, cut, lengthen, zeros, empty, remove, exchange, digit, digit,
    become_a_folder, become_a_link,
)  # fmt: skip


def damage(trial: Trial) -> Outcome:
    """Stop a run (or let it end), damage some of its files, check it and resume it.

    If `subbit check` finds nothing, resuming must give the undisturbed result without any message.
    """
    trial.choose_job(workers=1)
    random = trial.random
    stop = random.randint(trial.normal.changes // 3, trial.normal.changes + 10)
    trial.end(trial.start(trial.run_words(), at_change(stop, 9)), may_die=True)
    trial.say(f"stopped at change {stop} of {trial.normal.changes}")
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        files = sorted(path for path in trial.path.rglob("*") if path.is_file() and not path.is_symlink())
        # Choose the folder first, so that each is tested however many files it has.
        folder = random.choice(sorted({path.parent for path in files}))
        path = random.choice([path for path in files if path.parent == folder])
        kind = random.choice(KINDS)
        trial.say(f"{kind.__name__} {path.relative_to(trial.path)}")
        kind(path, random, files)
    shutil.copytree(trial.path, trial.folder / "damaged", symlinks=True)
    trial.ours.append(trial.folder / "damaged")
    checked = trial.subbit(["check", "runs/job"])
    found = bool(checked.status)
    trial.say(f"check: {clear_line(checked) if 'error: ' in checked.err else checked.out.strip()}")
    shown = trial.subbit(["show", "runs/job"])
    if shown.status:
        clear_line(shown)
    ended = trial.subbit(["resume", "runs/job"])
    if "going back" in ended.err and not found:
        raise FailedError(f"resume goes back, check found nothing:\n{ended.err}")
    if ended.status:
        line = clear_line(ended)
        if not found:
            raise FailedError(f"check found nothing, resume refuses: {line}")
        return Outcome(LINE, line)
    outcome = trial.judge(ended, check=False)
    if outcome.name != EQUAL and not found:
        raise FailedError(f"check found nothing, the end is {outcome}")
    return outcome

"""The code before the engine was made faster, measured in the same run as the code now.

Seconds of another machine say nothing about this one. So the code before is taken from the history, kept in `.bench`
and run by the same interpreter, in turns with the code now.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

from benchmarks.bench.engine.child import ROOT, ChildError, Spent, run_child

COMMIT = "4aae5ff62c0157d2d07d58eed7433b05c92e8023"
PARTS = ("src", "experiments", "benchmarks")
KEPT = ".bench"
ADVICE = "needs a clone with its whole history: git fetch --unshallow"
"""The last line of a message: all that the table shows."""
SECONDS = 120

Found = TypeVar("Found")


class BeforeError(RuntimeError):
    """The code before cannot be had here; the message says why and what to do."""


FAILURES = (BeforeError, ChildError)
"""What must not cost the measurement of the code now: no history, or old code that a new library breaks."""


def code_before(repository: Path = ROOT, commit: str = COMMIT) -> Path:
    """The folder of the code before. It appears when it is complete, and stays with the kernels compiled in it."""
    folder = repository / KEPT / f"before-{commit[:7]}"
    if not folder.is_dir():
        archive = _archive(repository, commit)
        try:
            _extract(archive, folder)
        except (tarfile.TarError, OSError) as error:
            raise BeforeError(f"{commit[:7]} cannot be extracted: {type(error).__name__}: {error}") from error
    return folder


def _archive(repository: Path, commit: str) -> bytes:
    words = ["git", "archive", "--format=tar", commit, *PARTS]
    try:
        done = subprocess.run(words, cwd=repository, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise BeforeError(f"the code before comes from git: {error}\n{ADVICE}") from error
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip()
        raise BeforeError(f"git archive {commit[:7]}: {complaint[-300:]}\n{ADVICE}")
    return done.stdout


def _extract(archive: bytes, folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    unfinished = Path(mkdtemp(prefix="unfinished-", dir=folder.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(unfinished, filter="data")
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():  # Else another run was first, with the same files.
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def run_before(words: Sequence[str], **options: Any) -> Spent:
    """Run `python WORDS` with the code before, in its folder."""
    folder = code_before()
    return run_child(words, root=folder, source=folder / "src", **options)


def in_turns(
    now: Callable[[int], Found], before: Callable[[int], Found], runs: int
) -> tuple[list[Found], list[Found], str]:
    """What `runs` runs of each found, in turns, so that a busy machine is busy for both, and why there are none of the
    code before. Run 0 of each comes first: it warms up and is not returned."""
    ours, theirs, reason = [], [], ""
    for number in range(runs + 1):
        ours.append(now(number))
        if not reason:
            try:
                theirs.append(before(number))
            except FAILURES as error:
                theirs, reason = [], f"{type(error).__name__}: {error}"
    return ours[1:], theirs[1:], reason

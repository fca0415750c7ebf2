"""Runs the commands of docs/first-model.md in an empty folder and puts what they print on the page.

    python scripts/first_model.py

Pictures are those of scikit-learn, written as files. tests/cli/test_first_model.py runs the page too and compares the
shape of what is printed, `make dist-check` does so with the wheel alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "first-model.md"
BLOCK = re.compile(r"(?<=```console\n)\$ (?P<command>[^\n]+)\n(?P<printed>.*?)(?=```)", re.DOTALL)
PROGRESS = re.compile(r" +[0-9]+ s: ")
"""Lines that a terminal writes over."""
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
EACH, SCALE = 30, 4
SHOWN = 2
CUT = "..."
"""In place of lines that differ from machine to machine."""

Shell = Callable[[str], str]


def write_pictures(folder: Path) -> None:
    """pictures/CLASS/*.png, and photo.png, which is in none of them."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = np.kron(pixels.reshape(-1, 8, 8) * 255 / 16, np.ones((SCALE, SCALE))).astype(np.uint8)
    for number, name in enumerate(NAMES):
        (folder / "pictures" / name).mkdir(parents=True)
        for place, found in enumerate(np.flatnonzero(labels == number)[:EACH]):
            Image.fromarray(images[found]).save(folder / "pictures" / name / f"{place:02}.png")
    Image.fromarray(images[np.flatnonzero(labels == 7)[EACH]]).save(folder / "photo.png")


def shell(folder: Path) -> Shell:
    """Runs a command in the folder; returns what a terminal would show."""
    environment = {**os.environ, "COLUMNS": "80"}

    def run(command: str) -> str:
        words, both = [sys.executable, "-m", *command.split()], subprocess.STDOUT
        done = subprocess.run(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=both, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    return run


def tidy(command: str, printed: str) -> str:
    """Without lines that a terminal writes over, and without the middle of what only tells about this machine."""
    lines = [line.rstrip() for line in printed.splitlines() if not PROGRESS.match(line)]
    if command == "subbit doctor":
        lines = [*lines[:SHOWN], CUT, *lines[-SHOWN:]]
    return "\n".join(lines) + "\n"


def replayed(page: str, run: Shell) -> str:
    """The page with what its commands print now."""
    found = {match["command"]: tidy(match["command"], run(match["command"])) for match in BLOCK.finditer(page)}
    return BLOCK.sub(lambda match: f"$ {match['command']}\n{found[match['command']]}", page)


def shapes(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with its lines. Numbers count as the same, and of the rounds only the last one is there."""
    for match in BLOCK.finditer(page):
        lines = [line for line in match["printed"].splitlines() if not _is_early_round(line)]
        yield match["command"], [_shape(line) for line in lines]


def _is_early_round(line: str) -> bool:
    return ", round " in line and " left" in line


def _shape(line: str) -> str:
    blank = re.sub(r"\b[0-9a-f]{16}\b", "#", re.sub(r"─+|  +", " ", line))
    return re.sub(r"[0-9][0-9.,:e-]*", "#", blank).strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        write_pictures(Path(name))
        PAGE.write_text(replayed(PAGE.read_text(), shell(Path(name))))


if __name__ == "__main__":
    main()

"""Completion in a shell: what it offers, without torch and soon; and in a real bash."""

from __future__ import annotations

import json
import os
import pty
import resource
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from subbit.cli import completion
from tests.cli.shell import subbit
from tests.test_start import HEAVY

MOST_SECONDS = 1.5
"""Of the processor, which other tests do not change much; on a quiet machine it is 0.25 s."""


def offered(words: str, folder: Path) -> list[str]:
    """Of bash, which separates words at the sign =."""
    cut = words.replace("=", " = ").split(" ")
    place = len(cut) - 1 if cut[-1] or not words.endswith("=") else len(cut) - 2
    variables = {"_SUBBIT_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(cut), "COMP_CWORD": str(place)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subbit(folder=folder, **variables).stdout.splitlines()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MOST_SECONDS
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("runs/a", "runs/b", "runs/not-a-run", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("runs/a", "runs/b"):
        (tmp_path / name / "config.toml").write_text("")
    (tmp_path / "job.toml").write_text('method = "fedpeft"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        ("subbit ru", {"run"}, {"list"}),
        ("subbit run ", {"method=", "rounds=", "kappa=", "job.toml"}, {"tuning="}),
        ("subbit run method=del", {"deltamask"}, {"fedavg"}),
        ("subbit run method=", {"deltamask", "fedavg"}, set()),
        ("subbit run metho", {"method=deltamask", "method=fedavg"}, {"method="}),
        ("subbit run method=fedavg codec=eden bit", {"bits="}, set()),
        ("subbit run method=fedpeft tuning=", {"lora", "bias"}, set()),
        ("subbit run job.toml tuning=l", {"lora"}, {"bias"}),
        ("subbit run dataset=dig", {"digits"}, {"mnist"}),
        ("subbit run head=", {"probe", "lda"}, set()),
        ("subbit show ", {"runs/a", "runs/b"}, {"runs/not-a-run", "other/"}),
        ("subbit check runs/n", {"runs/not-a-run/"}, {"runs/a"}),
        ("subbit list met", {"methods"}, {"models"}),
        ("subbit list codecs ed", {"eden"}, {"dense"}),
        ("subbit compare fedp", {"fedpm", "fedpeft"}, {"deltamask"}),
    ],
)
def test_words_are_offered(words: str, some: set[str], none: set[str], folder: Path) -> None:
    found = set(offered(words, folder))
    assert some <= found
    assert not none & found


WATCHED = """
import atexit, json, sys
atexit.register(lambda: print("@" + json.dumps(sorted(sys.modules))))
from subbit.cli.entry import main
sys.argv = ["subbit"]
main()
"""


def test_nothing_heavy_is_imported_and_no_plugin_runs(folder: Path) -> None:
    (folder / "loud.py").write_text("open('was-run', 'w').close()\n")
    words = "subbit run --plugin loud.py method = de"
    variables = {"_SUBBIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "6"}
    command, environment = [sys.executable, "-c", WATCHED], {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    *told, modules = done.stdout.strip().splitlines()
    assert {"deltamask", "deepreduce"} <= set(told), done.stderr
    assert not set(json.loads(modules[1:])) & HEAVY
    assert not (folder / "was-run").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(shell: str, tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert f"complete_{shell}" in subbit("--show-completion", shell, folder=tmp_path, **own).stdout
    subbit("--install-completion", shell, folder=tmp_path, **own)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "_SUBBIT_COMPLETE" in path.read_text()]
    assert len(written) == 1


def test_values_of_zsh_and_fish_have_their_key(folder: Path) -> None:
    variables = {"_SUBBIT_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subbit(folder=folder, **variables, _TYPER_COMPLETE_ARGS="subbit run method=delt")
    assert done.stdout.split() == ["method=deltamask"]
    variables = {"_SUBBIT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "subbit run method=delt"}
    assert '"method=deltamask"' in subbit(folder=folder, **variables).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash_completes_a_value(folder: Path) -> None:
    own = {"HOME": str(folder), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    (folder / "script.sh").write_text(subbit("--show-completion", "bash", folder=folder, **own).stdout)
    program = folder / "bin" / "subbit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m subbit "$@"\n')
    program.chmod(0o755)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        path = f"{program.parent}:{os.environ['PATH']}"
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PATH": path, "TERM": "dumb"})
    try:
        os.write(terminal, b"source script.sh\nsubbit run method=delt\t")
        seen, deadline = b"", time.monotonic() + 60
        while b"method=deltamask" not in seen and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.5)[0]:
                seen += os.read(terminal, 1 << 16)
        assert b"method=deltamask" in seen
    finally:
        os.write(terminal, b"\x03\nexit\n")
        os.close(terminal)
        os.waitpid(process, 0)


def test_a_damaged_file_and_a_folder_that_cannot_be_read_offer_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_bytes(b"\xff\xfe = [")
    assert ("method=", "Name of the method.") in completion._assignment(["broken.toml"], "m")
    assert completion.complete_folder("nowhere/") == []

"""The torture itself, for a few seconds: it runs, it judges, and it would notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chaos import canary
from chaos.__main__ import KINDS, order, table
from chaos.jobs import SAME
from chaos.processes import Ended, Process
from chaos.trial import FailedError, Trial, clear_line

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def test_a_few_trials_of_real_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chaos", "--seed", "3", "--folder", str(tmp_path / "work"), "--trials", "4"]
    kinds = ["--only", "kill", "--only", "damage", "--only", "liar", "--job", "topk", "--seconds", "15"]
    done = subprocess.run(command + kinds, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 3" in done.stdout
    assert done.stdout.splitlines()[-1].split()[0] == "all"


def test_the_same_seed_is_the_same_order_and_all_kinds_have_their_turn() -> None:
    first = [kind for _, kind in zip(range(60), order(7), strict=False)]
    assert first == [kind for _, kind in zip(range(60), order(7), strict=False)]
    assert set(first) == set(KINDS)
    assert table({}).split()[:2] == ["kind", "tried"]


@pytest.mark.parametrize("change", ["contents", "time", "gone", "new", "moved"])
def test_canaries_notice(tmp_path: Path, change: str) -> None:
    canary.plant(tmp_path)
    ours = (tmp_path / "runs" / "job",)
    before = canary.look(tmp_path, ours)
    (tmp_path / "runs/job/deep").mkdir(parents=True)
    (tmp_path / "runs/job.1").mkdir()
    assert [words for words in canary.differences(before, canary.look(tmp_path, ours)) if words != "runs is new"] == []
    photo = tmp_path / "photos/2001/beach.jpg"
    if change == "contents":
        photo.write_bytes(photo.read_bytes()[::-1])
        os.utime(photo, (canary.OLD, canary.OLD))
    elif change == "time":
        os.utime(photo)
    elif change == "gone":
        photo.unlink()
    elif change == "new":
        (tmp_path / "photos/2001/beach.jpg.tmp").touch()
    else:
        (tmp_path / "photos").rename(tmp_path / "photos.1")
    assert len(canary.differences(before, canary.look(tmp_path, ours))) > 1


def trial(tmp_path: Path) -> Trial:
    return Trial(SimpleNamespace(scratch=tmp_path), tmp_path / "trial", "kill", 0)  # type: ignore[arg-type]


def test_a_hang_a_traceback_and_a_process_left_behind_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.trial.PATIENCE", 0.5)
    monkeypatch.setattr("chaos.processes.GRACE_SECONDS", 0.2)
    one = trial(tmp_path)
    script = {
        "hangs": "import time; time.sleep(60)",
        "traceback": "1 / 0",
        "left behind": "import subprocess; subprocess.Popen(['sleep', '60'])",
        "signal 6": "import os; os.abort()",
    }
    for words, code in script.items():
        with pytest.raises(FailedError, match=words):
            one.end(one.start_work(lambda code=code: os.execv(sys.executable, [sys.executable, "-c", code])))


def test_another_result_without_a_counted_failure_is_a_failure(tmp_path: Path) -> None:
    one = trial(tmp_path)
    summary: dict[str, Any] = {**dict.fromkeys(SAME, 1), "failures": {}}
    one.normal = SimpleNamespace(summary=summary, ledger=b"a line")  # type: ignore[assignment]
    one.path.mkdir()
    (one.path / "ledger.csv").write_bytes(b"a line")
    (one.path / "summary.json").write_text(str(summary).replace("'", '"'))
    assert one.compare(one.path).name == "equal"
    (one.path / "ledger.csv").write_bytes(b"another line")
    with pytest.raises(FailedError, match="ledger"):
        one.compare(one.path)
    summary["model_sha256"] = 2
    with pytest.raises(FailedError, match="no failure was counted"):
        one.compare(one.path)


@pytest.mark.parametrize(
    ("printed", "fine"),
    [
        ("error: runs/job is in use by process 1: wait for it to end\n", True),
        ("", False),
        ("error: a\n", False),
        ("error: one reason why it ended\nerror: another reason why it ended\n", False),
        ("Usage: subbit run\nerror: something that is wrong here\n", False),
    ],
)
def test_one_clear_line(printed: str, fine: bool) -> None:
    ended = Ended(6, "", printed)
    if fine:
        assert clear_line(ended) == printed.strip()
    else:
        with pytest.raises(FailedError):
            clear_line(ended)


def test_a_child_says_what_it_printed_and_how_it_ended(tmp_path: Path) -> None:
    def work() -> None:
        print(Path.cwd(), os.environ["MINE"])
        sys.exit(7)

    ended = Process(work, tmp_path, {"MINE": "yes"}).wait(60)
    assert (ended.status, ended.out, ended.err) == (7, f"{tmp_path} yes\n", "")

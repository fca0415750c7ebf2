"""The command line as a user meets it: exit statuses, one line per error; real processes where they are the point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from tests.cli.shell import QUICK, here, subbit


def summary(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return found


@pytest.mark.parametrize(
    ("words", "wrong", "right"),
    [
        (["run", "method=detlamask"], "detlamask", "deltamask"),
        (["run", "method=deltamask", "kapa=0.5"], "kapa", "kappa"),
        (["run", "dataset=digit"], "digit", "digits"),
        (["run", "model=mpl"], "mpl", "mlp"),
        (["list", "method"], "method", "methods"),
        (["compare", "deltamask", "fedpn"], "fedpn", "fedpm"),
        (["run", "nowhere.toml"], "nowhere.toml", "TOML"),
        (["run", "."], "is a folder", "subbit init --data"),
        (["resume", "runs/nowhere"], "runs/nowhere", "config.toml"),
        (["run", "rounds=1", "job.toml"], "job.toml", "comes first"),
        (["compare", "rounds=3"], "no method", "subbit compare"),
        (["run", *QUICK, "method=fedpm", "aggregator=trimmed"], "aggregator=trimmed", "use beta"),
        (["compare", "fedavg", "fedpm", *QUICK, "aggregator=trimmed"], "aggregator=trimmed", "use beta"),
    ],
)
def test_a_wrong_word_is_one_line_with_the_nearest_right_one(
    words: list[str], wrong: str, right: str, tmp_path: Path
) -> None:
    done = here(*words, folder=tmp_path, status=None)
    # Others say what is being done.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ") and "loading PyTorch" not in line]
    assert done.returncode not in (0, 1)
    assert len(lines) == 1, done.stderr
    assert wrong in lines[0]
    assert right in lines[0]
    assert not list(tmp_path.rglob("config.toml")), "what is refused leaves no folder"
    if words[0] in ("run", "compare") and wrong in ("detlamask", "kapa", "fedpn"):
        assert done.returncode == 2


def test_a_run_leaves_its_files_and_can_be_shown(tmp_path: Path) -> None:
    here("run", *QUICK, "name=a", folder=tmp_path)
    folder = tmp_path / "runs" / "a"
    found = {path.name for path in folder.iterdir()}
    files = "config.toml split.txt split.json job events.jsonl ledger.csv layers.json summary.json report.html"
    assert found == {*files.split(), "checkpoint", "lock"}
    wanted = {
        "method", "model", "dataset", "clients", "rounds", "parameters", "accuracy", "accuracy_sampled",
        "accuracy_expected", "accuracy_thresholded", "accuracy_before", "uplink_bpp", "downlink_bpp", "uplink_bytes",
        "downlink_bytes", "one_off_bytes", "failed_clients", "seconds", "model_sha256", "versions",
    }  # fmt: skip
    assert wanted <= set(summary(folder))
    shown = here("show", "runs/a", folder=tmp_path).stdout
    assert "accuracy, expected network" in shown
    assert "runs/a is finished" in here("resume", "runs/a", folder=tmp_path).stdout
    again = here("run", "runs/a/config.toml", "name=b", folder=tmp_path)
    assert "fingerprint" in again.stdout
    assert summary(tmp_path / "runs" / "b")["model_sha256"] == summary(folder)["model_sha256"]


def test_a_run_says_what_it_loads_before_anything_else(tmp_path: Path) -> None:
    done = subbit("run", *QUICK, "rounds=1", "method=fedavg", folder=tmp_path)
    assert done.stderr.splitlines()[0] == "fedavg on mlp, digits: loading PyTorch"


def test_a_run_killed_by_sigkill_resumes_to_the_same_model(tmp_path: Path) -> None:
    words = [*QUICK, "rounds=12", "epochs=3"]
    here("run", *words, "name=whole", folder=tmp_path)
    command = [sys.executable, "-m", "subbit", "run", *words, "name=killed"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        events = tmp_path / "runs" / "killed" / "events.jsonl"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (events.exists() and len(events.read_text().splitlines()) > 4):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "runs" / "killed" / "summary.json").exists()
    subbit("resume", "runs/killed", folder=tmp_path)
    killed, whole = summary(tmp_path / "runs" / "killed"), summary(tmp_path / "runs" / "whole")
    assert killed["model_sha256"] == whole["model_sha256"]
    assert killed["accuracy_by_round"] == whole["accuracy_by_round"]
    ledgers = [(tmp_path / "runs" / name / "ledger.csv").read_bytes() for name in ("whole", "killed")]
    assert ledgers[0] == ledgers[1]


def test_a_comparison_shows_paper_form_exact_form_and_fedpm_side_by_side(tmp_path: Path) -> None:
    contenders = ["deltamask", "deltamask:preset=paper", "fedpm"]
    printed = here("compare", *contenders, *QUICK, "--target", "0.2", "--json", folder=tmp_path).stdout
    rows = json.loads(printed)["methods"]
    assert list(rows) == contenders
    assert rows["deltamask"]["false_flips_per_upload"] is None
    assert rows["deltamask:preset=paper"]["false_flips_per_upload"] > 0
    assert rows["deltamask:preset=paper"]["downlink_bpp"] > 32
    assert rows["deltamask"]["downlink_bpp"] < 6
    assert rows["deltamask"]["uplink_bpp"] < rows["fedpm"]["uplink_bpp"]
    assert "mb_to_target" in rows["fedpm"]
    table = here("compare", "deltamask", *QUICK, "rounds=1", "folder=elsewhere", folder=tmp_path).stdout
    assert "bits per trained parameter" in table
    assert (tmp_path / "elsewhere" / "comparison.json").exists()


@pytest.mark.parametrize("what", ["methods", "codecs", "models", "datasets", "partitions", "privacy"])
def test_lists_are_tables_and_json(what: str, tmp_path: Path) -> None:
    rows = json.loads(here("list", what, "--json", folder=tmp_path).stdout)
    assert rows
    assert all("name" in row for row in rows)
    assert str(rows[0]["name"]) in here("list", what, folder=tmp_path).stdout


def test_inspect_describes_a_frame_and_refuses_anything_else(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "codecs" / "golden"
    frame = sorted(golden.glob("*.bin"))[0]
    assert "codec" in subbit("inspect", str(frame), folder=tmp_path).stdout
    (tmp_path / "rubbish").write_bytes(b"rubbish")
    refused = here("inspect", "rubbish", folder=tmp_path, status=None)
    assert refused.returncode == 7
    assert "not a frame" in refused.stderr


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert subbit("--version", folder=tmp_path).stdout == f"subbit {metadata.version('subbit')}\n"


def test_benchmarks_are_run_from_a_clone_and_nowhere_else(tmp_path: Path) -> None:
    """A size that the benchmark refuses shows that it was found, and its option read."""
    root = Path(__file__).parents[1]
    for folder in (root, root / "docs"):
        one_line(subbit("bench", "codecs", "--size", "9999", folder=folder, status=None), "at least 10,000 places")
    assert "--size" in subbit("bench", "codecs", "--help", folder=root).stdout
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    refused = subbit("bench", "codecs", folder=tmp_path, status=None)
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "clone of the repository" in refused.stderr
    assert "subbit bench flower" in subbit("bench", "--help", folder=tmp_path).stdout


def test_help_has_examples(tmp_path: Path) -> None:
    for command in ("run", "resume", "show", "compare", "list", "inspect"):
        assert f"subbit {command}" in here(command, "--help", folder=tmp_path).stdout


def one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode not in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (@MOST@, resource.RLIM_INFINITY))
sys.argv = ["subbit", "run", *@WORDS@, "name=full"]
from subbit.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    ("job", "biggest"),
    [
        ([*QUICK, "method=fedavg", "select=head.bias", "rounds=30", "evaluate_every=30"], "events.jsonl"),
        ([*QUICK, "method=topk"], "memory/0/3.safetensors"),
        ([*QUICK, "method=fedavg", "select=head.bias"], "config.toml"),
    ],
)
def test_a_disk_that_takes_no_more_is_one_line_and_after_that_the_run_goes_on(
    job: list[str], biggest: str, tmp_path: Path
) -> None:
    """No file may grow to the size of this one, as on a disk that is full; then it may, and the result is the same."""
    here("run", *job, "name=whole", folder=tmp_path)
    most = (tmp_path / "runs/whole" / biggest).stat().st_size - 1
    if biggest == "events.jsonl":
        most -= 200  # Less than a line; the seconds in each have more digits in one run than in another.
    code = LIMITED.replace("@MOST@", str(most)).replace("@WORDS@", repr(job))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    one_line(done, "File too large")
    assert not list((tmp_path / "runs").rglob("*.tmp"))
    begun = bool(list((tmp_path / "runs/full/checkpoint").glob("*.json")))
    assert begun == (biggest == "events.jsonl")
    here(*(["resume", "runs/full"] if begun else ["run", *job, "name=full"]), folder=tmp_path)
    assert summary(tmp_path / "runs/full")["model_sha256"] == summary(tmp_path / "runs/whole")["model_sha256"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith(".")) == [".lock"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    one_line(here("run", *QUICK, "folder=file", folder=tmp_path, status=None), "file", "exists")
    one_line(here("run", *QUICK, "folder=file/deep", folder=tmp_path, status=None), "Not a directory")
    one_line(here("run", *QUICK, "folder=/proc/runs", folder=tmp_path, status=None), "/proc/runs")


def test_a_damaged_summary_is_one_line_and_check_names_the_file(tmp_path: Path) -> None:
    here("run", *QUICK, "name=a", folder=tmp_path)
    assert "0 damaged" in here("check", "runs/a", folder=tmp_path).stdout
    (tmp_path / "runs/a/summary.json").write_text("{")
    one_line(here("show", "runs/a", folder=tmp_path, status=None), "summary.json cannot be read", "subbit resume")
    done = here("check", "runs/a", folder=tmp_path, status=None)
    assert done.returncode == 6
    assert "summary.json" in done.stdout
    here("resume", "runs/a", folder=tmp_path)
    assert "0 damaged" in here("check", "runs/a", folder=tmp_path).stdout

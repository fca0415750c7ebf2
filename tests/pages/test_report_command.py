"""Reports as the commands write them: real runs."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import subbit as package
from subbit.core.errors import RunWarning
from tests.cli.shell import here
from tests.pages.hand_made import make_run, summary
from tests.pages.pages_parser import check_page

QUICK = ["model=mlp", "head=keep", "clients=3", "limit=120", "test_limit=60", "rounds=2", "batch_size=16"]


def test_a_run_ends_with_a_report_that_check_does_not_mind(tmp_path: Path) -> None:
    done = here("run", *QUICK, "method=fedpm", "name=a", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "report" in line] == ["report in runs/a/report.html"]
    folder = tmp_path / "runs" / "a"
    found = check_page((folder / "report.html").read_text(encoding="utf-8"))
    numbers = json.loads((folder / "summary.json").read_text())
    by_bytes, by_round, *_ = found.plots.values()
    assert by_round["series"][0]["y"] == numbers["score_by_round"]
    assert by_bytes["series"][0]["x"] == [each / 1e6 for each in numbers["bytes_by_round"]]
    assert f"accuracy {numbers['score']:.4f} after 2 rounds, {numbers['score_before']:.4f} at the start" in found.text
    bars = [each for plot in found.plots.values() for each in plot["series"] if each["mode"] == "bars"]
    sent = 1e6 * sum(sum(each["y"]) for each in bars)
    assert sent == pytest.approx(numbers["uplink_bytes"] + numbers["downlink_bytes"])
    checked = here("check", "runs/a", folder=tmp_path)
    assert "0 damaged" in checked.stdout
    (folder / "summary.json").unlink()
    assert here("report", "runs/a", folder=tmp_path).returncode == 0
    assert "Not finished: 2 of 2 rounds" in check_page((folder / "report.html").read_text(encoding="utf-8")).text


def test_no_report_if_none_is_wanted_and_a_foreign_file_is_only_a_warning(tmp_path: Path) -> None:
    done = here("run", *QUICK, "method=fedavg", "name=a", "--no-report", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "runs/a/report.html").exists()
    (tmp_path / "runs/report.html").write_text("my own notes")
    done = here("compare", "fedavg", "fedpm", *QUICK, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: no report was written: runs/report.html is there already" in done.stderr
    assert (tmp_path / "runs/report.html").read_text() == "my own notes"
    assert here("report", "runs", "--out", "compared.html", folder=tmp_path).returncode == 0
    assert "fedpm" in check_page((tmp_path / "compared.html").read_text(encoding="utf-8")).text


def test_a_comparison_ends_with_a_report_and_prints_json_alone(tmp_path: Path) -> None:
    done = here("compare", "fedavg", "fedpm", *QUICK, "--json", folder=tmp_path)
    numbers = json.loads(done.stdout)
    found = check_page((tmp_path / "runs/report.html").read_text(encoding="utf-8"))
    for row in numbers["methods"].values():
        assert f"{row['score']:.4f}" in found.text


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    make_run(tmp_path / "a", summary())
    code = (
        "import sys; sys.argv = ['subbit', 'report', 'a']\n"
        "from subbit.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "assert not {'torch', 'numba', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_no_folder_of_ours_is_one_line(tmp_path: Path) -> None:
    done = here("report", "nowhere", folder=tmp_path, status=6)
    assert done.returncode == 6
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nowhere is neither a run folder" in done.stderr


def test_fine_tune_writes_one_too_and_only_warns(tmp_path: Path) -> None:
    clients = [(torch.randn(20, 4), torch.arange(20) % 2) for _ in range(2)]
    module, settings = nn.Sequential(nn.Linear(4, 2)), {"method": "fedavg", "rounds": 1, "select": "all"}
    package.fine_tune(module, clients, clients[0], folder=tmp_path / "a", **settings)
    found = check_page((tmp_path / "a" / "report.html").read_text(encoding="utf-8"))
    assert "result.save(" in found.text
    assert package.write_report(tmp_path / "a") == tmp_path / "a" / "report.html"
    (tmp_path / "a" / "report.html").write_text("my own notes")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = package.fine_tune(module, clients, clients[0], folder=tmp_path / "a", resume=True, **settings)
    assert result.summary["rounds"] == 1
    (one,) = [each for each in told if "no report was written" in str(each.message)]
    assert one.category is RunWarning
    assert one.filename == __file__

"""`subbit doctor`: what it finds here, and what it says where something is missing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from subbit.setup import installed, this_machine
from subbit.setup.findings import Finding
from tests.cli.shell import subbit


def only(findings: Iterator[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def test_this_machine_works_and_every_line_that_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    done = subbit("doctor", "--json", folder=tmp_path)
    found = json.loads(done.stdout)
    assert found["works"]
    names = {finding["name"]: finding for finding in found["findings"]}
    assert {"Python", "subbit", "packages", "extra flower", "PyTorch", "kernels", "data digits"} <= set(names)
    assert names["model subbit/vit-micro"]["ok"]
    assert all(finding["advice"] for finding in found["findings"] if not finding["ok"])
    assert "pip install 'subbit[int8]'" in names["extra int8"]["advice"]
    assert "track=mlflow" in names["extra mlflow"]["advice"]
    assert "extra all" not in names, "it only names the others again"
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_data_sets_that_are_not_here_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBBIT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    *found, missing = this_machine.dataset_findings()
    assert "data digits" in {finding.name for finding in found}
    assert all(finding.ok for finding in found)
    assert "cifar10, cifar100" in missing.found
    assert "subbit list datasets NAME" in missing.advice
    assert not missing.stops_runs


def test_a_folder_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    finding = only(this_machine.folder_findings(tmp_path / "file" / "runs"), f"folder {tmp_path / 'file' / 'runs'}")
    assert finding.stops_runs
    assert "folder=" in finding.advice
    assert not only(this_machine.folder_findings(tmp_path / "new"), f"folder {tmp_path / 'new'}").stops_runs
    assert os.listdir(tmp_path) == ["file"]


def test_a_damaged_model_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from subbit.models import load_model

    (tmp_path / "model.safetensors").write_bytes(b"half a file")
    monkeypatch.setitem(load_model.BUNDLED, load_model.VIT_MICRO, tmp_path)
    damaged, whole = this_machine.model_findings()
    assert damaged.stops_runs
    assert "damaged" in damaged.found
    assert whole.ok


@pytest.mark.parametrize(
    ("version", "works"), [("1.40.0", False), ("1.41", True), ("1.99.1", True), ("2.0", False), (None, False)]
)
def test_a_version_of_flower_out_of_range_is_said(
    version: str | None, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version

    def pretended(name: str) -> str:
        if name == "flwr" and version is None:
            raise metadata.PackageNotFoundError(name)
        return str(version) if name == "flwr" else real(name)

    monkeypatch.setattr(installed.metadata, "version", pretended)
    finding = only(installed.package_findings(), "extra flower")
    assert finding.ok == works
    assert not finding.stops_runs
    assert works or "pip install 'subbit[flower]'" in finding.advice


def test_a_missing_package_stops_runs_and_a_broken_torch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed.metadata, "requires", lambda name: ["numpy<3,>=2.0", "no-such-package>=1"])
    assert only(installed.package_findings(), "packages").stops_runs
    monkeypatch.setitem(sys.modules, "torch", None)
    (torch,) = this_machine.torch_findings()
    assert torch.stops_runs


def test_kernels_of_the_source_are_counted() -> None:
    (kernels,) = this_machine.kernel_findings()
    assert int(kernels.found.split()[2]) > 40  # E.g. "20 of 72 are compiled".
    assert not kernels.stops_runs

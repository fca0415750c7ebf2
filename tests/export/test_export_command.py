"""`subbit export` as a user meets it, and its page."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import subbit
from subbit.cli.entry import app
from subbit.core.errors import SubbitError
from subbit.models import model_sha256
from subbit.runtime.folder import RunFolder

ROOT = Path(__file__).parents[2]
RUN = ["method=fedmask", "model=mlp", "head=keep", "clients=3", "limit=90", "test_limit=60", "rounds=1", "epochs=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a personal method."""
    path = tmp_path_factory.mktemp("runs")
    call("run", *RUN, f"folder={path}", "name=personal")
    return path / "personal"


def call(*words: str) -> None:
    """In this process: a new one would spend seconds on importing."""
    app(list(words), standalone_mode=False)


def test_the_mask_of_a_client_is_a_file_that_makes_its_network(folder: Path, tmp_path: Path) -> None:
    call("export", str(folder), "--mask", "--client", "1")
    call("export", str(folder), "--mask", "--client", "2", "--out", str(tmp_path / "new" / "two.mask"))
    model = subbit.load("mlp", folder / "mask-client-1.safetensors")
    assert model.task is not None
    assert model.task.description.client == 1
    first = model_sha256(model.module)
    model.switch(tmp_path / "new" / "two.mask")
    assert model_sha256(model.module) != first
    model.switch(folder / "mask-client-1.safetensors")
    assert model_sha256(model.module) == first


def test_the_network_of_a_client_for_a_device(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subbit.export.measure.ENOUGH_SECONDS", 0.0)
    capsys.readouterr()
    call("export", str(folder), "--shrink", "--client", "1", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["client"] == 1
    assert report["network"] == "personal"
    own = RunFolder.open(folder).read_summary()["accuracy_by_client"]["1"]
    assert report["accuracy"] == pytest.approx(own)
    assert report["measured"]["parameters"]["shrunk"] <= report["measured"]["parameters"]["dense"]
    assert (folder / "device-client-1" / "model.onnx").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mask", "--shrink"], "one of them"),
        ([], "one of them"),
        (["--mask", "--client", "7"], "has no data"),
    ],
)
def test_what_makes_no_sense_is_said(folder: Path, words: list[str], said: str) -> None:
    with pytest.raises(SubbitError, match=said):
        call("export", str(folder), *words)


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "subbit", "export", "nowhere", "--mask"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert done.stderr.count("\n") == 1
    assert "no config.toml" in done.stderr


def test_the_tables_of_the_page_are_what_the_committed_files_say() -> None:
    namespace = runpy.run_path(str(ROOT / "benchmarks" / "render_export.py"))
    page = (ROOT / "docs" / "export.md").read_text()
    assert namespace["rendered_page"](page) == page


def test_the_adapter_of_a_run_is_a_folder_for_peft(tmp_path: Path) -> None:
    words = ["method=fedpeft", "tuning=lora", "limit=40", "test_limit=10", "rounds=1", "clients=2"]
    call("run", *words, f"folder={tmp_path}", "name=lora")
    call("export", str(tmp_path / "lora"), "--adapter")
    found = {path.name for path in (tmp_path / "lora" / "adapter").iterdir()}
    assert found == {"adapter_config.json", "adapter_model.safetensors", "head.safetensors"}

"""The app that `subbit flower new` writes, and the two lines of compression in it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from subbit.core.errors import ConfigError
from subbit.flower.new import BESIDE, PACKAGES, Kind, write_new_app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_new_app_is_complete_and_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    name = f"my_{kind}"
    written = write_new_app(tmp_path / "My-App", name, kind)
    project = tomllib.loads((tmp_path / "My-App" / "pyproject.toml").read_text())
    assert project["project"]["name"] == name.replace("_", "-")
    components = project["tool"]["flwr"]["app"]["components"]
    monkeypatch.syspath_prepend(tmp_path / "My-App")
    for component in components.values():
        module, attribute = component.split(":")
        assert hasattr(importlib.import_module(module), attribute)
    if kind == "template":
        make_model = importlib.import_module(f"{name}.task").make_model
        assert sum(parameter.numel() for parameter in make_model().parameters()) == 126_090
    else:
        images, labels = importlib.import_module(f"{name}.app").load_data({"partition-id": 1, "num-partitions": 3})
        assert len(images) == len(labels) == 599
    assert not any("APP_NAME" in path.read_text() or "APP-NAME" in path.read_text() for path in written)
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,I,W,UP,B,RUF", "--line-length=120", "."],
        cwd=tmp_path / "My-App",
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("kind", PACKAGES)
def test_every_template_is_written(kind: Kind) -> None:
    templates = {path.name for path in (ROOT / "src/subbit/flower" / kind).iterdir()}
    assert templates == {f"{name}.template" for name in (*BESIDE, *PACKAGES[kind])}


def test_nothing_is_overwritten_and_names_must_be_names(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "work.txt").write_text("mine")
    with pytest.raises(ConfigError, match="nothing was written"):
        write_new_app(tmp_path / "taken")
    for name in ("1app", "class", "a/b", "../up"):
        with pytest.raises(ConfigError, match="cannot be the name"):
            write_new_app(tmp_path / "new", name)
    assert not (tmp_path / "new").exists()


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_one_bit_a_weight_costs_a_25th_and_less_than_two_points(tmp_path: Path) -> None:
    """`flwr run`, twice, through Ray. 126,090 floats are 504 KB; at one bit 15.8 KB, and some for headers. The first
    broadcast, at 8 bits, has 128 KB.
    """
    sys.path.insert(0, str(ROOT / "examples"))
    from flower_compressed import compare

    plain, compressed = compare(tmp_path)
    assert plain.replies == compressed.replies == 200
    assert plain.accuracy > 0.9
    assert compressed.accuracy > plain.accuracy - 0.02
    assert compressed.uplink_bytes * 25 <= plain.uplink_bytes
    assert compressed.both_ways * 25 <= plain.both_ways

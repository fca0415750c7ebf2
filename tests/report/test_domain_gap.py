"""The gap between data sets as a backbone sees them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.core.errors import ConfigError, ModelError
from subbit.papers.domain_gap import measure, project
from subbit.report.scatter import scatter


def test_distances_are_in_standard_deviations() -> None:
    """Three clouds of unit variance at 0, 3 and 12 on the first of six features: two apart by 3 and by 12 units."""
    generator = np.random.default_rng(0)
    clouds = {str(shift): generator.normal(size=(4000, 6)) + shift * np.eye(6)[0] for shift in (0, 3, 12)}
    points = project(clouds)
    centres = {name: part.mean(axis=0) for name, part in points.items()}
    assert np.linalg.norm(centres["3"] - centres["0"]) == pytest.approx(3, rel=0.03)
    assert np.linalg.norm(centres["12"] - centres["0"]) == pytest.approx(12, rel=0.03)
    assert all(part[:, 0].std() == pytest.approx(1, rel=0.05) for part in points.values())


def test_scales_of_features_do_not_matter() -> None:
    generator = np.random.default_rng(1)
    clouds = {"a": generator.normal(size=(500, 4)), "b": generator.normal(size=(300, 4)) + 1}
    scaled = {name: part * 1000 for name, part in clouds.items()}
    first, second = project(clouds), project(scaled)
    assert all(np.allclose(np.abs(first[name]), np.abs(second[name]), atol=1e-6) for name in clouds)
    assert not first["a"][:, 1].any()  # Two sets have one axis.


def test_what_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="each once"):
        measure("subbit/vit-micro", "digits", ["digits"], 10)
    with pytest.raises(ConfigError, match="at least one other"):
        measure("subbit/vit-micro", "digits", [], 10)
    with pytest.raises(ModelError, match="not finite"):
        project({"a": np.full((3, 2), np.nan), "b": np.zeros((3, 2))})


def test_the_command(tmp_path: Path) -> None:
    """The same images by another name lie nowhere else; their negatives do."""
    from subbit.data import load_dataset

    digits = load_dataset("digits", test_limit=60)
    for name, invert in (("same", False), ("negative", True)):
        parts = {}
        for split in ("train", "test"):
            examples = getattr(digits, split)
            inputs = examples.inputs.numpy()
            parts[f"x_{split}"] = 255 - inputs if invert else inputs
            parts[f"y_{split}"] = examples.labels.numpy()
        np.savez(tmp_path / f"{name}.npz", **parts)
    names = [str(tmp_path / f"{name}.npz") for name in ("same", "negative")]
    picture = tmp_path / "gap.svg"
    words = ["domain-gap", *names, "--reference", "digits", "--limit", "60", "--svg", str(picture), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    gaps = {row["dataset"]: row["gap"] for row in json.loads(result.stdout)["datasets"]}
    assert gaps["digits"] == 0
    assert gaps[names[0]] < 0.5 < 2 < gaps[names[1]]
    circles = ElementTree.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 3 * (60 + 2)


def test_a_picture_keeps_to_its_frame_and_escapes_names() -> None:
    points = np.random.default_rng(2).normal(size=(50, 2)) * 1e6
    text = scatter({"<a & b>": points, "one point": np.zeros((1, 2))}, "t")
    root = ElementTree.fromstring(text)
    places = [
        (float(entry.get("cx", -1)), float(entry.get("cy", -1))) for entry in root if entry.tag.endswith("circle")
    ]
    assert all(0 <= x <= 720 and 0 <= y <= 480 for x, y in places)
    assert "<a & b>" in {entry.text for entry in root}

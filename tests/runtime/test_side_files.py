"""`split.json` and `layers.json`: what they say is what the split and the checkpoint say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from subbit.codecs.packed import unpack_bits
from subbit.export.runs import open_run
from subbit.runtime.check import check_run
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import run_job
from subbit.runtime.side_files import Split
from tests.problems import digits_problem, settings

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "results.schema.json").read_text())


def finished(folder: Path, **values: Any) -> tuple[Path, Any]:
    problem, job = digits_problem(), settings(folder=str(folder), name="a", **values)
    made = RunFolder.create(job, "", Split.of(problem.split_summary()))
    return made.path, run_job(problem, job, made)


def read(path: Path) -> dict[str, Any]:
    """Also held against the committed schema."""
    found: dict[str, Any] = json.loads(path.read_text())
    Draft202012Validator(SCHEMA).validate(found)
    return found


def test_the_split_counts_every_example_once(tmp_path: Path) -> None:
    path, _ = finished(tmp_path, method="fedavg", rounds=1)
    problem, written = digits_problem(), read(path / "split.json")
    labels = problem.train.labels
    assert labels is not None
    assert written["classes"] == problem.classes
    assert written["sizes"] == [len(part) for part in problem.parts]
    for part, held in zip(problem.parts, written["held"], strict=True):
        counts = np.bincount(labels.numpy()[part], minlength=problem.classes)
        assert {int(each): count for each, count in held.items()} == {
            each: count for each, count in enumerate(counts.tolist()) if count
        }


@pytest.mark.parametrize("head", ["keep", "lda"])
def test_the_change_is_that_of_the_trained_network_against_the_given_one(head: str, tmp_path: Path) -> None:
    """Computed here from the module of the problem and that of the result, without the states of the run."""
    path, result = finished(tmp_path, method="fedavg", rounds=2, head=head)
    before, after = (dict(module.named_parameters()) for module in (digits_problem().module, result.module))
    layers = read(path / "layers.json")
    assert layers["kind"] == "change"
    compared = 0
    for layer in layers["layers"]:
        first, last = before[layer["name"]].detach(), after[layer["name"]].detach()
        assert layer["size"] == last.numel()
        if head == "lda" and first.shape[0] == 10:
            continue  # The fitted head is the start of that one, and is in no file that this test could read.
        assert layer["change"] == pytest.approx(float((last - first).norm() / first.norm()), rel=1e-4)
        assert layer["change"] > 0
        compared += 1
    assert compared


def test_a_mask_has_the_density_and_flips_of_its_likeliest_network(tmp_path: Path) -> None:
    """Against the exported network, and the mask that every side knows from the configuration."""
    path, _ = finished(tmp_path, method="deltamask", rounds=2)
    layers = read(path / "layers.json")
    assert (layers["kind"], layers["network"]) == ("mask", "thresholded")
    trained = open_run(path, problem=digits_problem())
    mask_map: Any = trained.workplace.method("main").map
    size = trained.flat.template.size
    first = torch.from_numpy(unpack_bits(mask_map.cut_mask(mask_map.initial_thresholds()), size).astype(bool))
    last = trained.flat.weights.detach() != 0
    views = zip(trained.flat.template.views(first), trained.flat.template.views(last), strict=True)
    for layer, (before, after) in zip(layers["layers"], views, strict=True):
        assert layer["density"] == pytest.approx(float(after.double().mean()))
        assert layer["flips"] == pytest.approx(float((before != after).double().mean()))
    assert any(layer["flips"] > 0 for layer in layers["layers"])


@pytest.mark.parametrize("method", ["fedmask", "standalone"])
def test_personal_networks_have_no_common_layers(method: str, tmp_path: Path) -> None:
    path, _ = finished(tmp_path, method=method, rounds=1)
    assert not (path / "layers.json").exists()


def test_the_trained_network_does_not_depend_on_whether_layers_are_described(tmp_path: Path) -> None:
    _, with_folder = finished(tmp_path, method="deltamask", rounds=2)
    alone = run_job(digits_problem(), settings(method="deltamask", rounds=2))
    assert with_folder.summary["model_sha256"] == alone.summary["model_sha256"]


def test_a_damaged_side_file_is_found(tmp_path: Path) -> None:
    path, _ = finished(tmp_path, method="fedavg", rounds=1)
    assert all(finding.damage is None for finding in check_run(path))
    for name in ("split.json", "layers.json"):
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[:-5])
        assert any(finding.damage and name in finding.what for finding in check_run(path))
        (path / name).write_bytes(whole)


def test_a_run_begun_without_the_split_file_ends_and_is_intact(tmp_path: Path) -> None:
    """As those of earlier versions, which are resumed by this one."""
    job = settings(folder=str(tmp_path), name="a", method="fedavg", rounds=1)
    folder = RunFolder.create(job, "")
    run_job(digits_problem(), job, folder)
    assert not (folder.path / "split.json").exists()
    assert all(finding.damage is None for finding in check_run(folder.path))

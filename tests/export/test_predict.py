"""`subbit predict`: a line per example for every kind of inputs and objective."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from subbit.cli.entry import app
from subbit.core.errors import SubbitError
from subbit.data import load_dataset
from subbit.export.runs import TrainedRun
from subbit.objectives import find_objective
from subbit.runtime.folder import RunFolder
from subbit.runtime.given import Given
from subbit.runtime.workplace import Workplace
from tests.problems import settings

DARK = "<b>dark"
SAID_AT_ONCE = ("no such file", "ends in", "there already")
RUN = ["model=mlp", "clients=3", "limit=90", "test_limit=60", "rounds=1"]


def call(*words: object) -> None:
    app([str(word) for word in words], standalone_mode=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    call("run", "method=fedavg", *RUN, f"folder={path}", "name=common")
    call("run", "method=fedmask", "head=keep", "epochs=1", *RUN, f"folder={path}", "name=personal")
    return path


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_test_set_gives_the_score_of_the_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    call("predict", runs / "common", "test")
    found = capsys.readouterr()
    rows = table(found.out)
    score = RunFolder.open(runs / "common").read_summary()["score"]
    assert len(rows) == 60
    assert np.mean([row["label"] == row["class"] for row in rows]) == pytest.approx(score)
    assert found.err.splitlines()[0].endswith("loading PyTorch")
    assert f"accuracy {score:.4f}" in found.err


def test_a_client_is_asked_about_its_own_test_set(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    call("predict", runs / "personal", "test", "--client", 1)
    rows = table(capsys.readouterr().out)
    own = RunFolder.open(runs / "personal").read_summary()["score_by_client"]["1"]
    assert np.mean([row["label"] == row["class"] for row in rows]) == pytest.approx(own)
    with pytest.raises(SubbitError, match="say whose"):
        call("predict", runs / "personal", "test")


def test_arrays_images_and_data_sets_say_the_same(runs: Path, tmp_path: Path) -> None:
    test = load_dataset("digits").test.tensor
    (tmp_path / "images").mkdir()
    for number in range(5):
        Image.fromarray(test[number, 0].numpy()).save(tmp_path / "images" / f"{number}.png")
    np.savez(tmp_path / "many.npz", inputs=test[:5].numpy(), notes=np.zeros(2))
    np.save(tmp_path / "one.npy", test[0].numpy())
    given = ["digits", tmp_path / "images", tmp_path / "many.npz", tmp_path / "one.npy", tmp_path / "images" / "0.png"]
    told = []
    for number, inputs in enumerate(given):
        call("predict", runs / "common", inputs, "--output", tmp_path / f"{number}.jsonl")
        lines = (tmp_path / f"{number}.jsonl").read_text().splitlines()
        told.append([json.loads(line) for line in lines])
    assert [row["example"] for row in told[1]] == [f"{number}.png" for number in range(5)]
    assert [len(rows) for rows in told[1:]] == [5, 5, 1, 1]
    for rows in told[1:]:
        assert [row["class"] for row in rows] == [row["class"] for row in told[0][: len(rows)]]
        shares = [row["probability"] for row in told[0][: len(rows)]]
        assert [row["probability"] for row in rows] == pytest.approx(shares, abs=1e-5)


def test_images_of_other_sizes_and_colours_are_fitted(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (40, 30), "white").save(tmp_path / "wide.jpg")
    capsys.readouterr()
    call("predict", runs / "common", tmp_path / "wide.jpg")
    assert table(capsys.readouterr().out)[0]["example"] == "wide.jpg"


def test_classes_of_folders_have_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, count in (("train", 6), ("test", 2)):
        for name, grey in ((DARK, 10), ("light", 240)):
            (tmp_path / "set" / split / name).mkdir(parents=True)
            for number in range(count):
                picture = Image.new("L", (8, 8), grey + number)
                picture.save(tmp_path / "set" / split / name / f"{number}.png")
    words = ["method=fedavg", "model=mlp", f"dataset={tmp_path / 'set'}", "partition=iid", "clients=2", "rounds=1"]
    call("run", *words, f"folder={tmp_path}", "name=run")
    capsys.readouterr()
    call("predict", tmp_path / "run", "test")
    rows = table(capsys.readouterr().out)
    assert {row["label"] for row in rows} == {DARK, "light"}
    assert {row["class"] for row in rows} <= {DARK, "light"}
    assert json.loads((tmp_path / "run" / "split.json").read_text())["class_names"] == [DARK, "light"]
    assert "&lt;b&gt;dark" in (tmp_path / "run" / "report.html").read_text()


def test_classes_of_a_table_have_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["a,b,label", *(f"{n % 7},{n % 5},{['no', 'yes'][n % 2]}" for n in range(60))]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    words = ["method=fedavg", "model=mlp", "head=keep", f"dataset={tmp_path / 'table.csv'}", "partition=iid"]
    call("run", *words, "clients=2", "rounds=1", f"folder={tmp_path}", "name=run")
    capsys.readouterr()
    call("predict", tmp_path / "run", "test")
    assert {row["label"] for row in table(capsys.readouterr().out)} == {"no", "yes"}


@pytest.mark.parametrize(
    ("inputs", "words", "said"),
    [
        ("nothing.png", [], "no such file"),
        ("unknown-set", [], "unknown data set"),
        ("floats.npy", [], "was trained on"),
        ("test", ["--output", "x.txt"], "ends in"),
        ("test", ["--output", "taken.csv"], "there already"),
        ("test", ["--output", "x.npz"], "for masks"),
        ("test", ["--client", "1"], "share one network"),
    ],
)
def test_what_makes_no_sense_is_said(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    inputs: str,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("floats.npy", np.zeros((2, 3)))
    Path("taken.csv").write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    capsys.readouterr()
    with pytest.raises(SubbitError, match=said):
        call("predict", runs / "common", inputs, *words)
    assert ("loading PyTorch" in capsys.readouterr().err) == (said not in SAID_AT_ONCE)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert Path("taken.csv").read_text() == "mine"


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 1)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layer(images)
        return logits


def prepared(objective: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Workplace:
    """A run of that objective, as `subbit predict` opens it."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(12, 4, generator=generator)
    labels: dict[str, Any] = {
        "regression": features.sum(1),
        "multi-label": (features[:, :3] > 0).float(),
        "segmentation": torch.randint(0, 3, (12, 5, 5), generator=generator),
        "language": torch.randint(0, 7, (12, 6), generator=generator),
    }
    inputs: dict[str, Tensor] = {
        "segmentation": torch.randn(12, 1, 5, 5, generator=generator),
        "language": labels["language"],
    }
    modules: dict[str, nn.Module] = {
        "regression": nn.Linear(4, 1),
        "multi-label": nn.Linear(4, 3),
        "segmentation": Pixels(),
        "language": nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7)),
    }
    data = (inputs.get(objective, features), labels[objective])
    problem = Given(find_objective(objective)).problem(modules[objective], [data], data, None, None, False)
    chosen = settings(method="fedavg", rounds=1, clients=1, head="keep", objective=objective, select="all")
    workplace = Workplace(problem, chosen)
    workplace.method("main").task.flat.evaluation_mode()
    trained = TrainedRun(workplace, "trained", None, 1)
    monkeypatch.setattr("subbit.export.runs.open_run", lambda *_, **__: trained)
    (folder / "config.toml").write_text('method = "fedavg"\n')
    return workplace


def test_values_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace = prepared("regression", monkeypatch, tmp_path)
    call("predict", tmp_path, "test", "--output", tmp_path / "values.csv")
    found = [float(row["value"]) for row in table((tmp_path / "values.csv").read_text())]
    inputs = workplace.problem.test_batch(np.arange(12)).tensor
    assert found == pytest.approx(workplace.module(inputs).flatten().tolist(), abs=1e-6)
    workplace = prepared("multi-label", monkeypatch, tmp_path)
    call("predict", tmp_path, "test", "--output", tmp_path / "labels.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    for row, logits in zip(rows, workplace.module(inputs), strict=True):
        assert row["labels"] == torch.nonzero(logits > 0).flatten().tolist()
        assert row["probabilities"] == pytest.approx(logits.sigmoid()[logits > 0].tolist(), abs=1e-6)


def test_masks_are_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace = prepared("segmentation", monkeypatch, tmp_path)
    with pytest.raises(SubbitError, match=r"FILE\.npz"):
        call("predict", tmp_path, "test")
    call("predict", tmp_path, "test", "--output", tmp_path / "masks.npz")
    expected = workplace.module(workplace.problem.test_batch(np.arange(12)).tensor).argmax(1)
    assert np.load(tmp_path / "masks.npz")["masks"].tolist() == expected.tolist()


def test_other_objectives_have_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared("language", monkeypatch, tmp_path)
    call("predict", tmp_path, "test")
    assert float(table(capsys.readouterr().out)[0]["perplexity"]) > 1
    np.save(tmp_path / "tokens.npy", np.zeros((2, 6), dtype=np.int64))
    with pytest.raises(SubbitError, match="only a score"):
        call("predict", tmp_path, tmp_path / "tokens.npy")

"""Files for other objectives than classification, from the configuration to a finished round."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_writers import random_images, write_image_folder
from torch import Tensor, nn

from subbit.config.resolve import Settings, resolve
from subbit.core.errors import ConfigError, DataError
from subbit.data import StoredData, load_dataset, partition
from subbit.data.needs import Reading
from subbit.models.load_model import SMALL_MODELS
from subbit.objectives import find_objective
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.trial import try_job

COMMON = {"method": "fedavg", "clients": 3, "rounds": 1, "model": "mlp", "head": "kaiming", "select": "all"}


class Pixels(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(input_shape[0], classes, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(inputs.float() / 255)
        return logits


def settings_of(folder: Path, **words: Any) -> Settings:
    return resolve({}, [f"{key}={value}" for key, value in {**COMMON, "folder": folder / "runs", **words}.items()])


def run(folder: Path, **words: Any) -> tuple[dict[str, Any], str]:
    """The summary, and the text on the split in the run's folder."""
    settings = settings_of(folder, **words)
    problem = build_problem(settings.run)
    try_job(problem, settings)
    opened = RunFolder.create(settings, problem.split_summary().as_text())
    with opened.interruptible():
        return run_job(problem, opened.settings, opened).summary, opened.split()


def write_csv(path: Path, heading: str, rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading.split(","), *rows])
    return path


def test_regression(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(60, 2))
    path = write_csv(tmp_path / "homes.csv", "size,age,price", [(a, b, 2 * a - b) for a, b in values])
    settings = settings_of(tmp_path, objective="regression", dataset=f"{path}?label=price")
    assert settings.run.partition == "iid"
    problem = build_problem(settings.run)
    assert (problem.classes, len(problem.train), len(problem.test)) == (1, 48, 12)
    summary, split = run(tmp_path, objective="regression", dataset=f"{path}?label=price")
    assert summary["score_name"] == "rmse"
    assert "inputs       features: size, age" in split
    for how in ("dirichlet", "classes"):
        with pytest.raises(ConfigError, match="use partition=iid, or partition=natural"):
            run(tmp_path, objective="regression", dataset=f"{path}?label=price", partition=how)


def test_regression_judged_by_owner(tmp_path: Path) -> None:
    rows = [(at, at % 3, f"city {at % 3}") for at in range(30)]
    path = write_csv(tmp_path / "homes.csv", "size,label,city", rows)
    words = {"objective": "regression", "partition": "natural", "evaluate": "personal", "dataset": f"{path}?owner=city"}
    problem = build_problem(settings_of(tmp_path, **words).run)
    for client in range(3):
        own = problem.test.batch(problem.own_test(client)).owners
        assert len(own) == 2
        assert {*own} == {*problem.train.select(problem.parts[client]).owners}
    run(tmp_path, **words)


def test_multi_label(tmp_path: Path) -> None:
    rows = [(at % 5, at % 3, int(at % 5 > 2), int(at % 3 > 0)) for at in range(40)]
    path = write_csv(tmp_path / "tags.csv", "a,b,hot,wet", rows)
    assert run(tmp_path, objective="multi-label", dataset=f"{path}?label=hot,wet")[0]["score_name"] == "f1"
    arrays = np.array(rows, dtype=np.float64)
    np.savez(
        tmp_path / "tags.npz",
        x_train=arrays[:, :2],
        y_train=arrays[:, 2:],
        x_test=arrays[:5, :2],
        y_test=arrays[:5, 2:],
    )
    assert run(tmp_path, objective="multi-label", dataset=tmp_path / "tags.npz")[0]["score_name"] == "f1"


def test_segmentation(tmp_path: Path) -> None:
    images = random_images(20, 1, 6, 6)
    masks = images[:, 0] // 100
    SMALL_MODELS.register("test-pixels", Pixels)
    for name, labels in (("a", masks), ("b", masks[..., None]), ("c", np.where(masks == 2, -100, masks.astype(int)))):
        path = tmp_path / f"{name}.npz"
        np.savez(path, x_train=images, y_train=labels, x_test=images[:5], y_test=labels[:5])
        words = {"objective": "segmentation", "dataset": path, "model": "test-pixels", "head": "keep"}
        assert build_problem(settings_of(tmp_path, **words).run).classes == (2 if name == "c" else 3)
        assert run(tmp_path, **words)[0]["score_name"] == "mean_iou"


def test_texts_with_owners(tmp_path: Path) -> None:
    rows = [(("vote law", "goal win")[at % 2], ("politics", "sport")[at % 2], f"u{at % 3}") for at in range(30)]
    path = write_csv(tmp_path / "news.csv", "body,topic,user", rows)
    dataset = f"{path}?text=body&label=topic&owner=user&tokenizer=bytes&length=8"
    summary, split = run(tmp_path, dataset=dataset, model="char-lstm", partition="natural")
    assert summary["score_name"] == "accuracy"
    assert "inputs       text: body, tokenizer bytes\nclasses      0 politics, 1 sport" in split


@pytest.mark.parametrize("workers", [1, 2])
def test_images_batch_by_batch(tmp_path: Path, workers: int) -> None:
    """The same network as from images in memory, also in worker processes."""
    write_image_folder(tmp_path / "set")
    found = [
        run(tmp_path, dataset=f"{tmp_path / 'set'}?size=6{option}", clients=2, workers=workers, augment="flip")[0]
        for option in ("", "&stored=true")
    ]
    assert found[0]["model_sha256"] == found[1]["model_sha256"]
    later = load_dataset(f"{tmp_path / 'set'}?stored=true")
    assert isinstance(later.train, StoredData)
    assert len(partition(later.train, 2, "dirichlet", alpha=1.0)) == 2


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    def save(train: Any) -> str:
        images = random_images(6, 1, 4, 4)
        np.savez(tmp_path / "x.npz", x_train=images, y_train=train, x_test=images, y_test=train)
        return str(tmp_path / "x.npz")

    for objective, labels, message in (
        ("regression", np.full(6, np.nan), "objective=regression needs finite float32"),
        ("multi-label", np.full((6, 2), 2), "objective=multi-label needs"),
        ("segmentation", np.zeros(6, dtype=int), "objective=segmentation needs int64"),
        ("segmentation", np.full((6, 4, 4), -1), "found a negative class"),
        ("regression", np.array(["a"] * 6), "need numbers"),
        ("regression", np.array(1.0), "found a single value"),
    ):
        with pytest.raises(DataError, match=message):
            load_dataset(save(labels), reading=Reading(find_objective(objective)))
    column = load_dataset(save(np.arange(6.0)), limit=4, reading=Reading(find_objective("regression"))).train
    assert column.labels.dtype == torch.float32
    assert len(column) == 4

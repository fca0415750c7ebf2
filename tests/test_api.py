"""The Python API: a user's own module and own data, and what it says when they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import subbit
from subbit.core.errors import ConfigError, DataError, RunFolderError, SubbitError
from subbit.data import Examples
from subbit.runtime.folder import RunFolder
from subbit.runtime.given import as_lines, differing, fingerprints
from subbit.runtime.problem import build_problem
from tests.problems import digits_problem, mlp


def clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = digits_problem()
    return [(data.client_data(client).inputs, data.client_data(client).labels) for client in range(3)]


def test_a_module_and_data_sets_of_any_kind() -> None:
    mixed = [*clients()[:1], TensorDataset(*clients()[1]), digits_problem().client_data(2)]
    module = mlp()
    before = [parameter.clone() for parameter in module.parameters()]
    seen = []
    result = subbit.fine_tune(module, mixed, digits_problem().test, rounds=2, report=seen.append)
    assert result.uplink_bpp == result.summary["uplink_bpp"] > 0
    assert result.parameters == 64 * 16 + 16 * 10  # "all: weights" is what masks select on a module without blocks.
    assert [progress.round_number for progress in seen] == [0, 1]
    assert all(torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))
    assert result.module is not module
    assert not any(parameter.grad is not None for parameter in module.parameters())
    with pytest.raises(AttributeError):
        _ = result.acuracy


def test_the_result_is_the_network_that_was_measured() -> None:
    test = digits_problem().test
    result = subbit.fine_tune(mlp(), clients(), test, method="fedavg", rounds=2)
    with torch.no_grad():
        right = (result.module(test.inputs).argmax(1) == test.labels).float().mean().item()
    assert right == pytest.approx(result.accuracy)


def test_a_folder_keeps_the_run(tmp_path: Path) -> None:
    subbit.fine_tune(mlp(), clients(), clients()[0], rounds=1, folder=tmp_path / "mine")
    assert (tmp_path / "mine" / "summary.json").exists()


def test_settings_that_the_arguments_already_say_are_refused() -> None:
    with pytest.raises(ConfigError, match="dataset"):
        subbit.fine_tune(mlp(), clients(), clients()[0], dataset="digits")
    with pytest.raises(ConfigError, match="kappa"):
        subbit.fine_tune(mlp(), clients(), clients()[0], kapa=0.1)


def test_data_that_does_not_fit_is_refused_with_what_is_needed() -> None:
    with pytest.raises(DataError, match="one data set per client"):
        subbit.fine_tune(mlp(), [], clients()[0])
    with pytest.raises(DataError, match="label 9"):
        subbit.fine_tune(mlp(), clients(), clients()[0], classes=5)
    odd = [clients()[0], (torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))]
    with pytest.raises(DataError, match="different shapes"):
        subbit.fine_tune(mlp(), odd, clients()[0])


@pytest.mark.parametrize("method", ["fedavg", "fedpm"])
def test_tied_weights_count_once_and_stay_tied(method: str) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 4))
    module[2].weight = module[1].weight
    data = (torch.randn(4, 4), torch.arange(4))
    result = subbit.fine_tune(module, [data], data, method=method, select="all: weights", rounds=2)
    assert result.parameters == 16
    assert result.module[2].weight is result.module[1].weight  # type: ignore[index]
    assert not torch.equal(result.module[1].weight, module[1].weight)  # type: ignore[index]


def test_what_is_frozen_stays_frozen_unless_it_is_asked_for() -> None:
    module = mlp()
    first, *others = (name for name, _ in module.named_parameters())
    module.get_parameter(first).requires_grad_(False)
    start = module.get_parameter(first).detach().clone()
    result = subbit.fine_tune(module, clients(), clients()[0], method="fedavg", select="all", rounds=1)
    assert torch.equal(result.module.get_parameter(first), start)
    assert not torch.equal(result.module.get_parameter(others[0]), module.get_parameter(others[0]))
    # As before: a second run on the result trains the same.
    flags = {name: parameter.requires_grad for name, parameter in result.module.named_parameters()}
    assert flags == {first: False, **dict.fromkeys(others, True)}
    asked = subbit.fine_tune(result.module, clients(), clients()[0], method="fedavg", select=first, rounds=1)
    assert not torch.equal(asked.module.get_parameter(first), start)


@pytest.mark.parametrize(
    "key", ["test_limit", "classes_per_client", "class_balance", "limit", "pooling", "run.alpha", "deadline", "engine"]
)
def test_keys_of_a_run_that_have_no_effect_here_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: fine_tune"):
        subbit.fine_tune(mlp(), clients(), clients()[0], **{key: 1})
    table, _, name = key.partition(".")
    if name:
        with pytest.raises(ConfigError, match=f"{key}: fine_tune"):
            subbit.fine_tune(mlp(), clients(), clients()[0], **{table: {name: 1}})


class Dictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(images.flatten(1).float())}


def floats() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, labels = clients()[0]
    return inputs.float() / 255, labels


@pytest.mark.parametrize(
    ("module", "data", "test", "words"),
    [
        (lambda inputs: inputs, clients(), clients()[0], "module: found function; need a torch"),
        (mlp(), None, clients()[0], "clients: found None; need a list"),
        (mlp(), [(torch.zeros(0, 1, 8, 8, dtype=torch.uint8), torch.zeros(0).long())], clients()[0], "no client has"),
        (mlp(), clients(), (clients()[0][0][:, :, 1:], clients()[0][1]), r"test: found inputs uint8 \[1, 7, 8\]"),
        (mlp(), clients(), floats(), r"test: found inputs float32 \[1, 8, 8\]"),
        (mlp(), [*clients(), floats()], clients()[0], "different shapes or types"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), clients(), clients()[0], r"uint8 \[n, 1, 8, 8\].*float"),
        (nn.Sequential(nn.Flatten(), nn.Linear(9, 10)), [floats()], floats(), r"float32 \[n, 1, 8, 8\]$"),
        (Dictionary(), clients(), clients()[0], "the module returns dict; needs a tensor"),
        (nn.Sequential(mlp(), nn.Linear(10, 4)), clients(), clients()[0], r"returns \[n, 4\] for 10 classes"),
    ],
)
def test_what_cannot_be_trained_is_one_line_before_anything_is_written(
    module: Any, data: Any, test: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SubbitError, match=words) as caught:
        subbit.fine_tune(module, data, test, method="fedavg", folder=tmp_path / "mine")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_classes_are_a_whole_number() -> None:
    with pytest.raises(ConfigError, match="classes='four': needs a whole number or none"):
        subbit.fine_tune(mlp(), clients(), clients()[0], classes="four")


def test_numbers_of_numpy_are_numbers() -> None:
    result = subbit.fine_tune(
        mlp(), clients(), clients()[0], method="fedavg", rounds=np.int64(1), local={"learning_rate": np.float32(0.1)}
    )
    assert result.rounds == 1


def test_an_lstm_is_a_module_like_any_other() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 12, batch_first=True)
            self.head = nn.Linear(12, 10)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(self.lstm(images.float().squeeze(1) / 255)[0][:, -1])
            return logits

    result = subbit.fine_tune(Reader(), clients(), clients()[0], rounds=1, select="lstm*")
    assert result.failed_clients == 0
    assert result.parameters == 4 * 12 * (8 + 12 + 2)


def test_a_folder_says_that_module_and_data_were_given_and_how_to_go_on(tmp_path: Path) -> None:
    """The command line cannot build them; before, it ran another job, or died with a traceback."""

    class StopError(Exception):
        pass

    def stop(progress: object) -> None:
        raise StopError

    job = {"method": "topk", "rounds": 3}
    whole = subbit.fine_tune(mlp(), clients(), clients()[0], folder=tmp_path / "whole", **job)
    with pytest.raises(StopError):
        subbit.fine_tune(mlp(), clients(), clients()[0], folder=tmp_path / "mine", report=stop, **job)
    folder = RunFolder.open(tmp_path / "mine")
    assert (folder.settings.run.model, folder.settings.run.dataset) == ("given", "given")
    with pytest.raises(ConfigError, match=r"given to subbit\.fine_tune.*resume=True"):
        build_problem(folder.settings.run)
    with pytest.raises(RunFolderError, match="other settings or other data"):
        subbit.fine_tune(mlp(), clients(), clients()[0], folder=tmp_path / "mine", resume=True, method="topk", rounds=9)
    resumed = subbit.fine_tune(mlp(), clients(), clients()[0], folder=tmp_path / "mine", resume=True, **job)
    assert resumed.model_sha256 == whole.model_sha256
    assert resumed.total_bytes == whole.total_bytes


def test_a_run_goes_on_only_with_the_same_module_and_data(tmp_path: Path) -> None:
    """Of the same shapes and labels: only the values differ."""

    class StopError(Exception):
        pass

    def stop(progress: object) -> None:
        raise StopError

    job = {"method": "fedavg", "rounds": 2, "folder": tmp_path / "mine"}
    with pytest.raises(StopError):
        subbit.fine_tune(mlp(), clients(), clients()[0], report=stop, **job)
    module = mlp()
    with torch.no_grad():
        module[4].bias[0] += 1e-3
    with pytest.raises(RunFolderError, match=r"other data \(the module\)"):
        subbit.fine_tune(module, clients(), clients()[0], resume=True, **job)
    inputs, labels = clients()[1]
    other = [clients()[0], (inputs ^ 1, labels), clients()[2]]
    with pytest.raises(RunFolderError, match=r"other data \(the data\)"):
        subbit.fine_tune(mlp(), other, clients()[0], resume=True, **job)
    with pytest.raises(RunFolderError, match=r"other data \(the test\)"):
        subbit.fine_tune(mlp(), clients(), clients()[1], resume=True, **job)
    with pytest.raises(RunFolderError, match=r"the settings and the split"):
        subbit.fine_tune(mlp(), clients()[:2], clients()[0], resume=True, **job)
    assert subbit.fine_tune(mlp(), clients(), clients()[0], resume=True, **job).rounds == 2


def test_a_folder_that_recorded_only_the_split_goes_on() -> None:
    """As those of earlier versions."""
    found = fingerprints(digits_problem())
    assert differing("split", "split", found) == []
    assert differing(f"split\n{as_lines(found)}", "split", found) == []
    assert differing("other", "split", found) == ["the split"]


def test_resuming_what_has_not_begun_begins_it(tmp_path: Path) -> None:
    result = subbit.fine_tune(mlp(), clients(), clients()[0], rounds=1, folder=tmp_path / "new", resume=True)
    assert result.rounds == 1
    with pytest.raises(ConfigError, match="give the folder"):
        subbit.fine_tune(mlp(), clients(), clients()[0], rounds=1, resume=True)


def test_personal_networks_are_judged_on_their_owners_test_examples() -> None:
    """Two clients whose labels are opposite: alone each is right about its own, together nobody is."""
    generator = torch.Generator().manual_seed(0)

    def examples(owner: str, count: int) -> Examples:
        inputs = torch.randn(count, 8, generator=generator)
        labels = ((inputs[:, 0] > 0) == (owner == "a")).long()
        return Examples(inputs, labels, (owner,) * count)

    given = [examples(owner, 200) for owner in "ab"]
    held_out = [examples(owner, 100) for owner in "ab"]
    inputs, labels = (torch.cat([getattr(each, name) for each in held_out]) for name in ("inputs", "labels"))
    test = Examples(inputs, labels, ("a",) * 100 + ("b",) * 100)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    job = {"rounds": 4, "epochs": 5, "learning_rate": 0.01}
    alone = subbit.fine_tune(module, given, test, method="standalone", **job)
    assert min(alone.accuracy_by_client.values()) > 0.9
    together = subbit.fine_tune(module, given, test, method="fedavg", evaluate="personal", **job)
    assert together.accuracy < 0.7
    with pytest.raises(DataError, match="owners"):
        subbit.fine_tune(module, [given[0], Examples(given[1].inputs, given[1].labels)], test, rounds=1)

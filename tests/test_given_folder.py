"""What `fine_tune` returns and writes: history, networks, and a folder that commands refuse in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import subbit
from subbit.cli.entry import app
from subbit.core.errors import ConfigError, ModelError, SubbitError
from subbit.core.randomness import torch_randomness
from subbit.models import model_sha256
from subbit.runtime.run import Progress


class Sums(Dataset[dict[str, Tensor]]):
    def __init__(self, count: int, seed: int) -> None:
        self.inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"values": self.inputs[number], "sum": self.inputs[number].sum()}


def collate(items: list[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.stack([item["values"] for item in items]), torch.stack([item["sum"] for item in items])


def squared(outputs: Tensor, wanted: Tensor) -> Tensor:
    return (outputs.squeeze(-1) - wanted).square().mean()


def close(outputs: Tensor, wanted: Tensor) -> Tensor:
    return ((outputs.squeeze(-1) - wanted).abs() < 1).float()


@torch_randomness(0)
def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))


def tune(**more: Any) -> Any:
    """With everything that can be given: functions, stored data sets, a test set for each client."""
    given = {"client_tests": [Sums(10, 10), Sums(8, 11)], "loss": squared, "score": close, "collate": collate}
    return subbit.fine_tune(network(), [Sums(30, 1), Sums(20, 2)], **{"rounds": 3, "method": "fedavg", **given, **more})


def stop(progress: Progress) -> None:
    if progress.round_number == 1:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api")
    tune(folder=path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune(folder=path / "half", report=stop)
    return path


@pytest.mark.parametrize("name", ["whole", "half"])
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "FOLDER", "test"],
        ["export", "FOLDER", "--module", "x"],
        ["export", "FOLDER", "--onnx", "x.onnx"],
        ["export", "FOLDER", "--mask"],
        ["export", "FOLDER", "--shrink"],
        ["export", "FOLDER", "--adapter"],
        ["run", "FOLDER/config.toml"],
        ["resume", "FOLDER"],
        ["show", "FOLDER"],
    ],
    ids=lambda words: "-".join(words).replace("FOLDER", ""),
)
def test_commands_say_how_to_go_on(folders: Path, name: str, words: list[str]) -> None:
    command = [word.replace("FOLDER", str(folders / name)) for word in words]
    if name == "whole" and words[0] in ("resume", "show"):
        app(command, standalone_mode=False)  # There is nothing to compute.
        return
    with pytest.raises(SubbitError, match=r"fine_tune\(.*resume=True") as found:
        app(command, standalone_mode=False)
    assert "\n" not in str(found.value)


def test_a_process_ends_with_one_line(folders: Path) -> None:
    command = [sys.executable, "-m", "subbit", "predict", str(folders / "half"), "test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)


def test_check_works_on_both(folders: Path) -> None:
    for name in ("whole", "half"):
        app(["check", str(folders / name)], standalone_mode=False)


def test_the_same_call_goes_on_or_returns_what_is_finished(folders: Path) -> None:
    whole, half = tune(folder=folders / "whole", resume=True), tune(folder=folders / "half", resume=True)
    assert whole.model_sha256 == half.model_sha256
    assert [record["score"] for record in whole.history] == [record["score"] for record in half.history]
    with pytest.raises(SubbitError, match="the settings"):
        tune(folder=folders / "half", resume=True, rounds=4)
    with pytest.raises(SubbitError, match="the test"):
        tune(folder=folders / "half", resume=True, client_tests=[Sums(10, 10), Sums(8, 12)])


def test_history_is_a_flat_record_per_round() -> None:
    result = tune(evaluate_every=2)
    first, second, last = result.history
    assert (first["round"], first["score"], first["failures"], first["answered"]) == (0, None, 0, 2)
    assert "close" not in first
    assert second["score"] == second["close"]
    assert last["uplink_bytes"] == result.uplink_bytes > second["uplink_bytes"]
    assert last["downlink_bytes"] == result.downlink_bytes
    assert last["total_bytes"] == result.total_bytes
    assert last["train_loss"] < first["train_loss"]


def test_one_network_for_all_has_no_networks() -> None:
    with pytest.raises(ConfigError, match=r"one network for all clients: result\.module"):
        _ = tune(rounds=1).networks


@pytest.mark.parametrize("workers", [1, 2])
def test_networks_of_clients_are_their_own(workers: int) -> None:
    result = tune(method="standalone", workers=workers)
    before = model_sha256(result.module)
    assert list(result.networks) == [0, 1]
    assert len(result.networks) == 2
    for client, test in enumerate((Sums(10, 10), Sums(8, 11))):
        inputs, wanted = collate([test[number] for number in range(len(test))])
        share = close(result.networks[client](inputs), wanted).mean()
        assert float(share) == pytest.approx(result.score_by_client[str(client)])
    assert model_sha256(result.networks[0]) != model_sha256(result.networks[1])
    assert model_sha256(result.module) == before
    with pytest.raises(KeyError):
        _ = result.networks[2]


def test_networks_need_the_module_as_it_was() -> None:
    module = network()
    data = [(torch.randn(8, 6), torch.arange(8) % 2) for _ in range(2)]
    result = subbit.fine_tune(
        nn.Sequential(module, nn.Linear(1, 2)), data, data[0], method="standalone", rounds=1, classes=2
    )
    with torch.no_grad():
        next(module.parameters()).add_(1)
    with pytest.raises(ModelError, match="was changed since"):
        _ = result.networks[0]

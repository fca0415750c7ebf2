"""Runs that are not classification in memory: methods, workers, resuming, caches, regularisers and privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import subbit
from subbit.core.errors import RunFolderError
from subbit.core.randomness import torch_randomness
from subbit.runtime.run import Result
from tests.objectives.own_problems import VOCABULARY, Stored, image_classifier, images, job, numbers, regressor
from tests.problems import digits_problem, small_vit

KINDS = ["regression", "stored", "language", "padded", "augmented", "own"]
METHODS: list[dict[str, Any]] = [
    {"method": "fedavg"},
    {"method": "deltamask"},
    {"method": "zampling"},
    {"method": "fedmask"},
    {"method": "subbit"},
    {"method": "per-fedavg"},
    {"method": "gradmask", "mask": "least-sensitive", "calibration_examples": 8},
    {"method": "standalone"},
    {"method": "topk"},
]


def run(kind: str, *, personal: bool = False, **more: Any) -> Result:
    module, clients, test, values = job(kind)
    tests = {"client_tests": [test] * len(clients)} if personal else {"test": test}
    return subbit.fine_tune(module, clients, **tests, **{"rounds": 1, "batch_size": 8, **values, **more})


def facts(result: Result) -> Any:
    """What must not depend on how a run was carried out."""
    kept = ("model_sha256", "score", "scores", "score_by_round", "total_bytes", "score_before")
    return {key: result.summary[key] for key in kept}


@pytest.mark.filterwarnings("ignore::subbit.core.errors.RunWarning")
@pytest.mark.parametrize("kind", ["regression", "language"])
@pytest.mark.parametrize("words", METHODS, ids=lambda words: words["method"])
def test_methods_take_any_objective(words: dict[str, Any], kind: str) -> None:
    personal = words["method"] in ("fedmask", "standalone", "per-fedavg")
    result = run(kind, personal=personal, **words)
    assert result.failed_clients == 0
    assert result.score_name == {"regression": "rmse", "language": "perplexity"}[kind]
    assert result.score > 0
    assert not result.higher_is_better
    assert "accuracy" not in result.summary


def test_lora_of_a_regression() -> None:
    parts = [digits_problem().client_data(client) for client in range(3)]
    clients = [(part.inputs, torch.nn.functional.one_hot(part.labels, 10).float()) for part in parts]
    result = subbit.fine_tune(
        small_vit(), clients, clients[0], objective="regression", method="fedpeft", tuning="lora", rounds=1
    )
    assert result.score < result.score_before


@torch_randomness(0)
def test_lora_of_a_language_model() -> None:
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, bos_token_id=None, eos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    _, clients, test, values = job("language")
    result = subbit.fine_tune(
        LlamaForCausalLM(config), clients, test, method="fedpeft", tuning="lora", rounds=1, batch_size=8, **values
    )
    assert result.score < result.score_before


@pytest.mark.parametrize("kind", KINDS)
def test_workers_do_not_change_the_result(kind: str) -> None:
    one, two = (run(kind, method="fedavg", rounds=2, workers=workers) for workers in (1, 2))
    assert facts(one) == facts(two)
    assert one.failed_clients == 0


@pytest.mark.parametrize("kind", ["stored", "padded", "own"])
def test_a_resumed_run_is_the_uninterrupted_one(kind: str, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(progress: object) -> None:
        raise StopError

    whole = run(kind, method="fedavg", rounds=3)
    with pytest.raises(StopError):
        run(kind, method="fedavg", rounds=3, folder=tmp_path / "mine", report=stop)
    resumed = run(kind, method="fedavg", rounds=3, folder=tmp_path / "mine", resume=True)
    assert facts(resumed) == facts(whole)


def test_a_run_with_other_stored_data_is_not_resumed(tmp_path: Path) -> None:
    run("stored", method="fedavg", folder=tmp_path / "mine")
    module, clients, test, values = job("stored")
    clients[1] = Stored(*numbers(30, 77))
    with pytest.raises(RunFolderError, match="the data"):
        subbit.fine_tune(
            module,
            clients,
            test,
            rounds=1,
            batch_size=8,
            method="fedavg",
            folder=tmp_path / "mine",
            resume=True,
            **values,
        )


def test_data_that_are_read_give_the_same_as_data_in_memory() -> None:
    assert facts(run("stored", method="fedavg")) == facts(run("regression", method="fedavg"))
    assert facts(run("stored", method="fedavg", in_memory=True)) == facts(run("regression", method="fedavg"))


def test_the_cache_changes_no_bit_of_a_regression() -> None:
    job_ = {"method": "fedavg", "select": "2*", "rounds": 2}
    assert facts(run("regression", cache="exact", **job_)) == facts(run("regression", cache="off", **job_))


@pytest.mark.parametrize(
    "words",
    [
        {"method": "moon"},
        {"method": "fedprox", "mu": 0.1},
        {"method": "fedavg", "privacy": "run", "optimizer": "sgd", "batch_size": 10},
        {"method": "fedavg", "selection": "high-loss", "participation": 0.34},
        {"method": "fedavg", "evaluate": "personal"},
    ],
    ids=["moon", "fedprox", "privacy", "high-loss", "evaluate=personal"],
)
@pytest.mark.parametrize("kind", ["regression", "stored", "own"])
def test_what_belongs_to_a_run_works_with_any_objective(words: dict[str, Any], kind: str) -> None:
    result = run(kind, personal="evaluate" in words, **{"rounds": 2, **words})
    assert result.failed_clients == 0


def test_training_lowers_what_should_fall() -> None:
    for kind in ("regression", "language", "padded"):
        result = run(kind, method="fedavg", rounds=6, learning_rate=0.02)
        assert result.score < 0.8 * result.score_before


def test_augmentation_changes_training_and_not_evaluation() -> None:
    plain, changed = run("augmented", method="fedavg", augment=None), run("augmented", method="fedavg")
    assert plain.score_before == changed.score_before
    assert plain.model_sha256 != changed.model_sha256


def test_the_score_of_one_network_is_that_of_each_clients_own_test_set() -> None:
    """A loss of one's own is only known for whole batches: none of them may hold examples of two clients."""
    tests = [numbers(5, 1), numbers(9, 2)]
    result = subbit.fine_tune(
        regressor(), [numbers(30, seed) for seed in range(2)], client_tests=tests, loss=mean_loss, method="fedavg",
        rounds=1, evaluate="personal",
    )  # fmt: skip
    with torch.no_grad():
        wanted = [float(mean_loss(result.module(inputs), labels)) for inputs, labels in tests]
    assert [*result.score_by_client.values()] == pytest.approx(wanted, rel=1e-6)


def mean_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.squeeze(1) - labels).square().mean()


def test_scores_that_are_no_numbers_are_left_out() -> None:
    """R2 of equal labels is undefined, and NaN is no JSON."""
    inputs, labels = numbers(20, 0)
    result = subbit.fine_tune(
        regressor(), [(inputs, labels)], (inputs, torch.ones(20)), objective="regression", method="fedavg", rounds=1
    )
    assert [*result.scores] == ["rmse", "mae", "loss"]


def test_a_client_whose_items_cannot_be_read_fails_alone(tmp_path: Path) -> None:
    class Torn(Stored):
        def __getitem__(self, place: int) -> Any:
            if place == 17:
                raise KeyError("no such scan")
            return super().__getitem__(place)

    clients = [Torn(*images(30, 0)), *(Stored(*images(30, seed)) for seed in (1, 2))]
    with pytest.warns(UserWarning, match="client 0 never answered"):
        result = subbit.fine_tune(image_classifier(), clients, images(20, 9), method="fedavg", rounds=2)
    assert result.failures == {"training": 2}

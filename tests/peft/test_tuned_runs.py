"""Whole runs of `fedpeft`: every tuning with every regulariser, on every kind of input, and what is left of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from subbit.data import Examples, load_dataset
from subbit.export.runs import open_run
from subbit.models.load_model import load_classifier
from subbit.peft import TUNINGS
from subbit.peft.lora import save_adapter
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job
from tests.peft.families import inputs_for, load_family
from tests.problems import digits_problem, settings, small_vit


@pytest.fixture(scope="module")
def free() -> dict[str, str]:
    """The model that each tuning ends with when nothing holds it back."""
    return {tuning: finish(tuning) for tuning in TUNINGS}


def finish(tuning: str, **values: object) -> str:
    chosen = settings(method="fedpeft", tuning=tuning, batch_size=8, rounds=2, **values)
    summary = run_job(digits_problem(small_vit(), examples=48), chosen).summary
    assert summary["failed_clients"] == 0, summary["failures"]
    return str(summary["model_sha256"])


@pytest.mark.parametrize("tuning", list(TUNINGS))
@pytest.mark.parametrize("regulariser", ["fedprox", "moon"])
def test_every_tuning_can_be_held_back(tuning: str, regulariser: str, free: dict[str, str]) -> None:
    """But for MOON on a head: it contrasts the features below, which never change."""
    held = finish(tuning, regulariser=regulariser, mu=5.0)
    assert (held == free[tuning]) == (tuning == "head" and regulariser == "moon")


@pytest.mark.parametrize("family", ["videomae", "bert"])
@pytest.mark.parametrize("tuning", list(TUNINGS))
def test_every_tuning_of_videos_and_texts(family: str, tuning: str, tmp_path: Path) -> None:
    examples = Examples(inputs_for(family, 24), torch.arange(24) % 5)
    problem = Problem(
        module=load_family(family, tmp_path),
        train=examples,
        parts=tuple(np.array_split(np.arange(24), 3)),
        test=examples,
        classes=5,
        pretrained=True,
        model_name=family,
        dataset_name="random",
    )
    chosen = settings(method="fedpeft", tuning=tuning, batch_size=8, rounds=1, head="kaiming")
    summary = run_job(problem, chosen).summary
    assert summary["failed_clients"] == 0, summary["failures"]


def test_plain_peft_loads_the_lora_of_a_run(tmp_path: Path) -> None:
    import peft

    values = {"method": "fedpeft", "tuning": "lora", "model": "subbit/vit-micro", "limit": 60, "test_limit": 20}
    chosen = settings(**values, name="lora", folder=str(tmp_path), rounds=1, learning_rate=0.5)
    problem = build_problem(chosen.run)
    run_job(problem, chosen, RunFolder.create(chosen, problem.split_summary().as_text()))
    trained = open_run(tmp_path / "lora").workplace.module
    save_adapter(trained, tmp_path / "adapter")

    ours = load_classifier("subbit/vit-micro", 10, key=0)
    images = load_dataset("digits", test_limit=20).test.inputs
    with torch.no_grad():
        before = ours.features(images)
        ours.backbone = peft.PeftModel.from_pretrained(ours.backbone, str(tmp_path / "adapter"))  # type: ignore[assignment]
        ours.head.load_state_dict(load_file(tmp_path / "adapter" / "head.safetensors"))
        ours.eval()
        torch.testing.assert_close(ours(images), trained(images), rtol=0, atol=1e-5)
        assert not torch.allclose(ours.features(images), before)

"""A run against a plain loop of torch on the same module, without anything of subbit."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import subbit
from tests.peft.language_models import VOCABULARY, language_model, sentences

ROOT = Path(__file__).parents[2]
PLAIN = runpy.run_path(str(ROOT / "benchmarks" / "plain_lora.py"))
CLIENTS, ROWS = 4, 32
COMMON: dict[str, Any] = {
    "objective": "language",
    "method": "fedpeft",
    "tuning": "lora",
    "lora_targets": "q_proj, v_proj, down_proj",
    "schedule": "cosine",
    "seed": 3,
}


def rows(data: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return data["input_ids"], data["attention_mask"]


def both(rounds: int, batch_size: int, rate: float, **settings: Any) -> tuple[Any, float]:
    """What a run found, and the perplexity of the plain loop from the same start."""
    model = language_model("llama")
    clients, test = [sentences(ROWS, seed) for seed in range(CLIENTS)], sentences(64, 9)
    start = subbit.fine_tune(model, clients, test, **COMMON, rounds=1, learning_rate=0.0, batch_size=ROWS).module
    for name, value in start.named_parameters():
        value.requires_grad_("lora_" in name)
    plan = PLAIN["Plan"](
        rounds=rounds,
        participants=CLIENTS,
        batch_size=batch_size,
        learning_rate=rate,
        rank=4,
        alpha=8,
        targets=(),
    )
    PLAIN["federated"](start, [rows(client) for client in clients], plan)
    result = subbit.fine_tune(
        model, clients, test, **COMMON, rounds=rounds, learning_rate=rate, batch_size=batch_size, **settings
    )
    return result, PLAIN["perplexity"](start, rows(test))


def test_whole_batches_give_the_same_network() -> None:
    """One step per turn with all rows of the client: nothing is left to chance, so only rounding may differ."""
    result, plain = both(rounds=5, batch_size=ROWS, rate=0.03)
    assert result.score < 0.99 * result.score_before <= 1.5 * VOCABULARY
    assert result.score == pytest.approx(plain, rel=1e-4)


def test_one_bit_both_ways() -> None:
    """Batches are drawn by other generators, and what travels is one bit instead of 32: with four clients and a tiny
    network this costs 2% of the perplexity; the experiment's size is below."""
    result, plain = both(rounds=24, batch_size=8, rate=0.01, codec="eden", bits=1, down_codec="eden", down_bits=1)
    assert result.score < 0.8 * result.score_before
    assert result.score == pytest.approx(plain, rel=0.05)


def test_the_measured_experiment() -> None:
    """`benchmarks/language.py` on experiments/language.toml."""
    measured = json.loads((ROOT / "benchmarks" / "results" / "language.json").read_text())["rows"]
    run, plain = measured["LoRA, one bit"], measured["plain loop"]
    assert run["score"] < 0.9 * run["score_before"]
    assert run["uplink_bpp"] < 1.2
    assert run["downlink_bpp"] < 1.2
    assert run["score_before"] == pytest.approx(plain["score_before"], rel=1e-4)
    assert run["score"] == pytest.approx(plain["score"], rel=0.02)


def test_the_page_has_the_measured_numbers() -> None:
    rendering = runpy.run_path(str(ROOT / "benchmarks" / "render_language.py"))
    page = (ROOT / "docs" / "language-models.md").read_text()
    assert rendering["rendered_page"](page) == page, "run python benchmarks/render_language.py"

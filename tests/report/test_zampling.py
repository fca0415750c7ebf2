"""The tables of paper 002 on a tiny problem: real commands, numbers that can be checked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.problems import settings
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.config.resolve import read_toml, resolve
from subbit.core.errors import ConfigError, RunFolderError
from subbit.papers.zampling_tables import (
    COMPRESSIONS,
    FEDERATED,
    FEDERATED_PAPER,
    PAPER_TABLE_1,
    PAPER_TABLE_2,
    finished_run,
    judge,
    open_run,
    perturbed,
)
from subbit.wire.frame import HEADER_BYTES

TINY = ["dataset=digits", "model=mlp-small", "limit=100", "test_limit=50", "batch_size=32", "epochs=1"]
RESUMED = {"dataset": "digits", "limit": 60, "test_limit": 20, "model": "mlp-small"}


def call(folder: Path, *words: str) -> dict[str, object]:
    output = folder / "out.json"
    result = CliRunner().invoke(app, ["zampling", *words, "--output", str(output)])
    assert result.exit_code == 0, result.output + repr(result.exception)
    numbers: dict[str, object] = json.loads(output.read_text())
    return numbers


def test_only_places_inside_tau_are_shaken_and_the_rest_stays() -> None:
    p = np.array([0.0, 0.05, 0.5, 0.95, 1.0], dtype=np.float32)
    inside, norm = perturbed(p, 0.1, 1)
    assert inside[[0, 1, 3, 4]].tolist() == p[[0, 1, 3, 4]].tolist()
    assert norm > 0
    assert inside.min() >= 0
    assert inside.max() <= 1
    everywhere, larger = perturbed(p, "all", 1)
    assert (everywhere != p).sum() >= 2
    assert larger > norm
    # The paper's tau = 0.5, read as written, is the single value one half.
    assert perturbed(p[:2], 0.5, 1) == (pytest.approx(p[:2]), 0.0)


def test_local_table_and_what_is_done_with_one_of_its_runs(tmp_path: Path) -> None:
    """digits on SMALL: 64-20-20-10 has 64*20+20 + 20*20+20 + 20*10+10 = 1,930 weights, 60 of them at m/n = 32."""
    words = [*TINY, f"folder={tmp_path}"]
    table = call(tmp_path, "table", *words, "--seeds", "1", "--samples", "2")
    assert [row["compression"] for row in table["rows"]] == list(COMPRESSIONS)  # type: ignore[attr-defined]
    assert table["runs"]["32"][0]["places"] == 60  # type: ignore[index]
    run = tmp_path / "zampling-local-1-seed0"
    first = (run / "summary.json").stat().st_mtime_ns
    call(tmp_path, "table", *words, "--seeds", "1", "--samples", "2")
    assert (run / "summary.json").stat().st_mtime_ns == first  # A finished run is not run again.
    shaken = call(tmp_path, "sensitivity", str(run), "--tau", "0.5", "--tau", "all", "--perturbations", "2")
    inside, everything = shaken["rows"]  # type: ignore[misc]
    assert inside["places"] < 0.01
    assert inside["accuracy"] == pytest.approx(shaken["unperturbed"])
    assert everything["places"] == 1.0
    assert everything["paper"] == [78.80, 0.17, 0.12]
    base, lost = shaken["unperturbed"], shaken["unperturbed"] - everything["accuracy"]  # type: ignore[operator]
    assert everything["sensitivity"] == pytest.approx(lost / base)  # type: ignore[operator]


def test_the_table_is_compared_with_the_papers_row_of_its_own_degree(tmp_path: Path) -> None:
    words = [*TINY, f"folder={tmp_path}", "--degree", "5", "--seeds", "1", "--samples", "1"]
    table = call(tmp_path, "table", *words)
    assert [(row["paper"], row["paper_deviation"]) for row in table["rows"]] == list(PAPER_TABLE_2[5])  # type: ignore[attr-defined]
    workplace, _, _ = open_run(tmp_path / "zampling-local-d5-1-seed0")
    assert workplace.settings.parameters.map.degree == 5
    other = CliRunner().invoke(app, ["zampling", "table", "--degree", "7"])
    assert "table 2 has 100, 50, 10, 5, 1" in str(other.exception)


def test_federated_table_counts_real_frames(tmp_path: Path) -> None:
    words = [*TINY, f"folder={tmp_path}", "rounds=2", "clients=2"]
    table = call(tmp_path, "table", "--part", "federated", *words, "--samples", "1")
    for row, factor in zip(table["rows"], PAPER_TABLE_1, strict=True):  # type: ignore[call-overload]
        packed = HEADER_BYTES + (1930 // factor + 7) // 8
        assert row["client_savings_packed"] == pytest.approx(4 * 1930 / packed)
        summary = json.loads((tmp_path / f"zampling-federated-{factor}" / "summary.json").read_text())
        assert row["client_savings"] == pytest.approx(4 * 1930 * 4 / summary["uplink_bytes"])


def test_the_papers_preset_has_the_papers_length_and_rate(tmp_path: Path) -> None:
    words = ["dataset=digits", "limit=60", "test_limit=20", "model=mlp-small", f"folder={tmp_path}", "clients=2"]
    call(tmp_path, "table", "--part", "federated", *words, "preset=paper", "rounds=1", "patience=1", "--samples", "1")
    settings = open_run(tmp_path / "zampling-paper-8")[0].settings
    local = settings.parameters.local
    assert (local.epochs, local.learning_rate, local.schedule) == (100, 0.1, "constant")
    assert FEDERATED_PAPER["rounds"] == 100


def test_the_file_of_the_federated_table_is_its_last_line() -> None:
    file = Path(__file__).parents[2] / "experiments" / "zampling-mnist.toml"
    table = resolve(FEDERATED, ["compression=32", "name=zampling-mnist"])
    assert resolve(read_toml(file), []) == table


def test_gap_trains_without_drawing(tmp_path: Path) -> None:
    words = [*TINY, f"folder={tmp_path}"]
    found = call(tmp_path, "gap", *words, "--beta", "0.1", "--beta", "1", "--seeds", "1", "--samples", "2")
    for row in found["rows"]:  # type: ignore[attr-defined]
        assert row["gap"] == pytest.approx(row["expected"] - row["sampled"])
        assert row["sampled_worst"] <= row["sampled"] <= row["sampled_best"]
    workplace, _, _ = open_run(tmp_path / "zampling-gap-0.1-seed0")
    assert workplace.settings.parameters.map.training == "continuous"
    assert workplace.settings.parameters.map.p_init == 0.1


def test_an_unfinished_run_is_gone_on_with(tmp_path: Path) -> None:
    chosen = settings(method="zampling", folder=str(tmp_path), name="a", rounds=2, **RESUMED)
    path = finished_run(chosen)
    finished = (path / "summary.json").read_bytes()
    (path / "summary.json").unlink()
    finished_run(chosen)
    keep = ("model_sha256", "uplink_bytes", "accuracy_by_round")
    before, after = json.loads(finished), json.loads((path / "summary.json").read_bytes())
    assert [before[name] for name in keep] == [after[name] for name in keep]
    assert not path.with_name("a.1").exists()
    workplace, state, summary = open_run(path)
    assert judge(workplace, state, 1)["expected"] == pytest.approx(summary["accuracy_expected"])


def test_wrong_questions_are_answered_with_what_is_needed(tmp_path: Path) -> None:
    runner = CliRunner()
    wrong_part = runner.invoke(app, ["zampling", "table", "--part", "global"])
    assert isinstance(wrong_part.exception, ConfigError)
    wrong_tau = runner.invoke(app, ["zampling", "sensitivity", str(tmp_path), "--tau", "0.7"])
    assert "0 to 0.5, or all" in str(wrong_tau.exception)
    other = finished_run(settings(method="fedavg", folder=str(tmp_path), name="other", rounds=1, **RESUMED))
    with pytest.raises(RunFolderError, match="a run of fedavg: needs one of zampling"):
        open_run(other)

"""Published figures of others beside ours: copied with their sources, computed as their code sends."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from subbit.arena.jobs import read_jobs
from subbit.arena.kept_results import Record, write_record

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text())
FOUND = {"seed": 0, "setting": "", "score_name": "accuracy", "higher_is_better": True, "score": 0.7}
SPENT = {"uplink_bytes": 1200, "downlink_bytes": 2400, "one_off_bytes": 500, "total_bytes": 4100, "parameters": 99}
ROUNDS = {"clients": 10, "participants": 3, "rounds": 4, "cpu": 1.0}


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("peers")


def test_every_peer_names_its_sources_with_a_quotation() -> None:
    for peer in (PUBLISHED["decomfl"], PUBLISHED["fedkseed"]):
        assert peer["citation"]
        assert peer["address"].startswith("https://arxiv.org/abs/")
        for source in peer["sources"]:
            assert source["address"].startswith("https://")
            assert source["says"]
            assert source["quotation"]


def test_what_decomfl_sends_in_a_round(peers: Any) -> None:
    """Two steps, five scalars each: 10 up. Down, after three rounds: 3 * (10 scalars + 2 seeds) and 2 new seeds."""
    about = {"bytes_of_a_number": 4, "local_steps": 2, "perturbations": [5], "rounds_since_last_turn": 3}
    (found,) = peers.decomfl_rounds({"per_round": about})
    assert (found.up, found.down) == (40, 4 * 38)


def test_printed_values_are_read_or_refused(peers: Any) -> None:
    assert peers.printed("84.02% (0.18 MB)") == pytest.approx((0.8402, 0.18))
    with pytest.raises(ValueError, match="needs the form"):
        peers.printed("84.02%")


def test_our_bytes_are_those_of_a_client_and_round(peers: Any, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "tiny.toml").write_text('what = "tiny: small"\n[base]\nrounds = 4\n[methods.subbit]\n')
    (jobs / "waiting.toml").write_text('what = "waiting"\n[base]\nrounds = 4\n[methods.fedavg]\n[methods.subbit]\n')
    job = read_jobs(jobs)["tiny"]
    curves = {"score_by_round": [None, 0.6, None, 0.7], "bytes_by_round": [500, 1000, 2000, 4100]}
    runs = [{**FOUND, **SPENT, **ROUNDS, **curves}]
    write_record(tmp_path, Record("tiny", "subbit", job.fingerprint(job.entries["subbit"]), chosen="", runs=runs))
    (own,) = peers.own_results(jobs, tmp_path)
    assert (own.job, own.what, own.up, own.down, own.whole) == ("tiny", "tiny", 100, 200, 410)
    assert own.curve == ((100, 0.6), (410, 0.7))
    section = peers.peers({"peers": PUBLISHED, "own": [own]})
    assert "| `subbit`, *tiny* | tiny, 99 weights | 100 | 200 | 4 | 3 of 10 | 0.000 | measured |" in section
    assert section.count("theirs") == 3
    assert "0.8402 | 0.18 | 0.8508 | 0.36" in section


def test_the_picture_is_what_the_committed_results_say(peers: Any, tmp_path: Path) -> None:
    plot, render = (importlib.import_module(name) for name in ("plot_peers", "render_flagship"))
    found = render.peers()
    plot.save_plot(found["own"], found["peers"], tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_bytes() == render.PICTURE.read_bytes(), "run benchmarks/render_flagship.py"
    plot.save_plot([], found["peers"], tmp_path / "none.svg")

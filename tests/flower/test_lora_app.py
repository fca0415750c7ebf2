"""examples/flower_lora.py: a FlowerTune-style app with the two lines of compression, and what they save."""

from __future__ import annotations

import importlib
import math
import random
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from tests.flower.loopback import NODES, Loopback

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = EXAMPLES / "flower_lora"
ROUNDS = 3


def load(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[ModuleType]:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.syspath_prepend(APP)
    return [importlib.import_module(name) for name in names]


def settings(**changes: Any) -> dict[str, Any]:
    """The app's own, as Flower hands them over: with dots in the names of tables."""
    tables = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    flat = {}
    for name, value in tables.items():
        flat |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return {**flat, **changes}


@pytest.mark.usefixtures("a_run")
def test_two_lines_cost_a_25th_and_less_than_two_percent_of_perplexity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, three clients and rounds. 20,480 values are 81.9 KB; at one bit 2.6 KB and a header."""
    tiny, client, server, runner = load(
        monkeypatch, "tiny_llama", "lora_app.client_app", "lora_app.server_app", "flower_lora"
    )
    tiny.write_tiny_llama(tmp_path, steps=100)
    found = {}
    for compressed in (False, True):
        random.seed(0)  # Flower shuffles the nodes.
        run_config = settings(
            **{"compress": compressed, "model.name": str(tmp_path), "num-server-rounds": ROUNDS},
            **{"train.learning-rate-min": 5e-3},  # In the last of so few rounds hardly anything would be learned.
        )
        grid = Loopback(client.app, run_config=run_config)
        capsys.readouterr()
        server.app(grid, Context(1, 0, {}, RecordDict(), run_config))
        assert grid.errors == []
        found[compressed] = runner.RESULT.search(capsys.readouterr().out)
    plain, small = found[False], found[True]
    assert plain[2] == small[2] == str(ROUNDS * len(NODES))
    assert int(small[1]) * 25 <= int(plain[1])
    before, after = float(plain[4]), float(plain[5])
    assert small[4] == plain[4]
    assert after < 0.95 * before  # Else 2% would say little. It falls by 11%, with Python 3.11's texts.
    assert abs(math.log(float(small[5]) / after)) < math.log(1.02)


def test_without_the_two_lines_it_is_a_plain_flower_app() -> None:
    """So that nobody needs to look for a third."""
    lines = [line for path in sorted(APP.rglob("*.py")) for line in path.read_text().splitlines()]
    used = [line.strip() for line in lines if re.search(r"compress\(", line)]
    assert [line.split("  #")[0] for line in used] == [
        'app = ClientApp(mods=[compress(codec="eden", bits=1)])',
        'strategy = compress(codec="eden", bits=1).strategy(strategy)',
    ]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_example_through_flowers_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runner,) = load(monkeypatch, "flower_lora")
    plain, small = runner.compare(tmp_path, seed=0)
    assert small.uplink_bytes * 25 <= plain.uplink_bytes
    assert plain.after < 0.8 * plain.before
    assert abs(math.log(small.after / plain.after)) < math.log(1.02)

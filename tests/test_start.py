"""What a command imports: one that only looks something up needs neither torch nor the compiled kernels."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from subbit.cli.entry import main
from subbit.core import own_components
from subbit.core.garbage import uncollected
from subbit.report.catalogue import KINDS

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "numba", "numpy", "scipy", "sklearn", "datasets", "flwr"}
WATCHED = """
import json, sys
from subbit.cli.entry import main
sys.argv = ["subbit", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(json.dumps(sorted(sys.modules)))
"""
FINISHED = {
    "method": "fedavg", "model": "mlp", "dataset": "digits", "accuracy": 0.5, "accuracy_before": 0.1, "parameters": 10,
    "uplink_bpp": 1.0, "downlink_bpp": 1.0, "uplink_bytes": 1, "downlink_bytes": 1, "one_off_bytes": 0,
    "failed_clients": 0, "seconds": 1.0, "model_sha256": 64 * "0",
}  # fmt: skip


def imported(*words: str, folder: Path) -> set[str]:
    """The modules that a process has imported when the command is done."""
    command = [sys.executable, "-c", WATCHED, json.dumps(words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["zampling", "--help"],
        *(["list", what] for what in KINDS),
        ["list", "methods", "--json"],
        ["list", "methods", "deltamask"],
        ["list", "codecs", "eden"],
        ["init", "--yes"],
        ["inspect", str(ROOT / "tests/codecs/golden/rice.bin")],
    ],
    ids=" ".join,
)
def test_looking_something_up_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    assert not imported(*words, folder=tmp_path) & HEAVY


def test_showing_a_run_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('method = "fedavg"\n')
    (tmp_path / "summary.json").write_text(json.dumps(FINISHED))
    (tmp_path / "events.jsonl").write_text("")
    assert not imported("show", ".", folder=tmp_path) & HEAVY


def test_the_files_of_our_own_components_are_up_to_date() -> None:
    """In a process of its own: others in this one may have registered components."""
    script = ROOT / "scripts" / "own_components.py"
    code = f"import runpy; print(runpy.run_path({str(script)!r})['text'](), end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert own_components.FILE.read_text(encoding="utf-8") == done.stdout, "run python scripts/own_components.py"
    code = code.replace("'text'", "'keys_text'")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert own_components.KEYS.read_text(encoding="utf-8") == done.stdout, "run python scripts/own_components.py"


def test_the_file_is_not_used_where_others_add_components(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_components.own_components("methods")
    monkeypatch.setattr(own_components, "loaded_plugins", lambda: ("a plugin",))
    assert own_components.own_components("methods") is None
    monkeypatch.setattr(own_components, "loaded_plugins", tuple)
    monkeypatch.setattr(own_components, "entry_points", lambda group: [f"a package of {group}"])
    assert own_components.own_components("methods") is None


def test_a_run_of_the_bundled_model_imports_only_what_it_uses(tmp_path: Path) -> None:
    """What takes longest to import: transformers, and the compiler of torch, which the first optimiser would load."""
    words = ["run", "method=deltamask", "rounds=1", "clients=2", "limit=20", "test_limit=10", "head=probe"]
    found = imported(*words, folder=tmp_path)
    assert {"torch", "numba"} <= found
    unwanted = {
        "transformers",
        "sklearn",
        "scipy.stats",
        "datasets",
        "flwr_datasets",
        "pandas",
        "torch._dynamo",
        "sympy",
    }
    assert not found & unwanted


def test_a_run_that_calls_no_kernel_does_not_import_numba(tmp_path: Path) -> None:
    words = ["run", "method=fedavg", "model=mlp", "head=keep", "rounds=1", "clients=2", "limit=20", "test_limit=10"]
    found = imported(*words, folder=tmp_path)
    assert "torch" in found
    assert not found & {"numba", "scipy", "llvmlite"}


COMPILER = """
import sys, torch
from subbit.runtime.lean_torch import KEPT, leave_compiler_out
leave_compiler_out()
leave_compiler_out()
optimizer = torch.optim.Optimizer([torch.zeros(3)], {"lr": 1.0})
optimizer.load_state_dict(optimizer.state_dict())
assert "torch._dynamo" not in sys.modules
import torch._dynamo
optimizer.zero_grad()
optimizer.add_param_group({"params": [torch.ones(2)]})
assert len(optimizer.param_groups) == 2
kept = getattr(torch.optim.Optimizer.zero_grad.__wrapped__, KEPT)
assert "_dynamo" in kept.__code__.co_filename, kept.__code__.co_filename
"""


def test_torch_handles_its_compiler_as_always_once_that_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_collected_while_modules_are_imported() -> None:
    before = gc.get_freeze_count()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > before
    gc.unfreeze()
    with uncollected(freeze=False):
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()  # Who disabled it before wants it so.
    finally:
        gc.enable()


def test_threads_of_openblas_sleep_at_once_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "OPENBLAS_THREAD_TIMEOUT"
    monkeypatch.setattr(sys, "argv", ["subbit", "--version"])
    for given, expected in (("", "4"), ("20", "20")):
        monkeypatch.setenv(name, given)
        if not given:
            monkeypatch.delenv(name)
        with pytest.raises(SystemExit):
            main()
        assert os.environ[name] == expected

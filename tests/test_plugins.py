"""Plugins as their authors and users meet them: files and packages outside of the repository, real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from subbit.config.resolve import resolve
from subbit.core import plugins, registry
from subbit.core.errors import ConfigError, PluginError, RunFolderError
from subbit.core.registry import REGISTRIES, register
from subbit.runtime.making import remove_unfinished

EXAMPLES = Path(__file__).parents[1] / "examples"
JOB = ["model=mlp", "head=keep", "clients=4", "limit=200", "test_limit=60", "rounds=3", "batch_size=16"]
CHECKED = ("objective", "method", "codec", "aggregator", "optimizer")
QUICK = [*JOB, "method=sign-vote"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that is not ours, with a plugin in it."""
    shutil.copy(EXAMPLES / "sign_vote.py", tmp_path)
    return tmp_path


def subbit(*words: str, folder: Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subbit", *words]
    variables = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False, env=variables)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def one_line(done: subprocess.CompletedProcess[str], status: int = 2) -> str:
    assert done.returncode == status, done.stderr
    # Others say what is being done.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ") and "loading PyTorch" not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


# Files.


def test_a_run_with_workers_records_its_plugin(elsewhere: Path) -> None:
    run = ["run", "--plugin", "sign_vote.py", *QUICK]
    subbit(*run, "name=one", folder=elsewhere)
    subbit(*run, "name=two", "workers=2", folder=elsewhere)
    one, two = (elsewhere / "runs" / name for name in ("one", "two"))
    assert summary(one)["model_sha256"] == summary(two)["model_sha256"]
    assert summary(two)["failed_clients"] == 0
    assert 1 <= summary(two)["uplink_bpp"] < 1.1
    assert (two / "plugins" / "sign_vote.py").read_bytes() == (elsewhere / "sign_vote.py").read_bytes()
    recorded = tomllib.loads((two / "config.toml").read_text())["plugins"]
    assert recorded == f"sign_vote@{plugins.read_plugin(elsewhere / 'sign_vote.py').sha256}"
    # What was written about a run can be read without running anybody's code.
    assert "sign-vote on mlp" in subbit("show", "runs/two", folder=elsewhere).stdout
    assert "give it with --plugin" in one_line(subbit("check", "runs/two", folder=elsewhere, check=False))
    checked = subbit("check", "runs/two", "--plugin", "sign_vote.py", folder=elsewhere).stdout
    assert " 0 damaged" in checked
    (two / "plugins" / "sign_vote.py").write_text("# altered")
    damaged = subbit("check", "runs/two", "--plugin", "sign_vote.py", folder=elsewhere, check=False)
    assert damaged.returncode == 6
    assert "plugins/sign_vote.py" in damaged.stdout


def test_a_killed_run_resumes_with_the_same_file_and_with_no_other(elsewhere: Path) -> None:
    run = ["run", "--plugin", "sign_vote.py", *QUICK, "rounds=10", "epochs=3", "workers=2"]
    subbit(*run, "name=whole", folder=elsewhere)
    command = [sys.executable, "-m", "subbit", *run, "name=killed"]
    events, killed = elsewhere / "runs/killed/events.jsonl", elsewhere / "runs/killed"
    with subprocess.Popen(command, cwd=elsewhere, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (events.exists() and len(events.read_text().splitlines()) > 3):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert not (killed / "summary.json").exists()
    shown = one_line(subbit("show", "runs/killed", folder=elsewhere, check=False), 6)
    assert "go on with subbit resume runs/killed --plugin sign_vote.py" in shown
    without = one_line(subbit("resume", "runs/killed", folder=elsewhere, check=False))
    assert "uses the plugin sign_vote.py" in without
    assert "runs/killed/plugins" in without
    changed = elsewhere / "changed" / "sign_vote.py"
    changed.parent.mkdir()
    changed.write_text((elsewhere / "sign_vote.py").read_text() + "\n# changed\n")
    other = one_line(subbit("resume", "runs/killed", "--plugin", str(changed), folder=elsewhere, check=False))
    assert "give the file as it was" in other
    resumed = subbit("resume", "runs/killed", "--plugin", "sign_vote.py", folder=elsewhere).stdout
    assert "runs the code of" in resumed
    for key in ("model_sha256", "accuracy_by_round", "total_bytes"):
        assert summary(killed)[key] == summary(elsewhere / "runs/whole")[key]
    ledgers = [(elsewhere / "runs" / name / "ledger.csv").read_bytes() for name in ("whole", "killed")]
    assert ledgers[0] == ledgers[1]


def test_a_comparison_and_the_lists(elsewhere: Path) -> None:
    asked = ["compare", "fedavg", "sign-vote:server_rate=0.02", "--plugin", "sign_vote.py", *JOB, "--json"]
    rows = json.loads(subbit(*asked, folder=elsewhere).stdout)["methods"]
    assert rows["sign-vote:server_rate=0.02"]["uplink_bpp"] < rows["fedavg"]["uplink_bpp"] / 25
    listed = subbit("list", "methods", "--json", "--plugin", "sign_vote.py", folder=elsewhere).stdout
    assert "sign-vote" in {row["name"] for row in json.loads(listed)}
    shutil.copy(EXAMPLES / "geometric_median.py", elsewhere)
    listed = subbit("list", "aggregators", "--json", "--plugin", "geometric_median.py", folder=elsewhere).stdout
    assert "geometric-median" in {row["name"] for row in json.loads(listed)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import nothing_like_this", "line 1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("\n\ndef half(:", "line 3: SyntaxError"),
        ("import sys\nsys.exit(3)", "line 2: SystemExit: 3"),
        ("from subbit import register\n\n@register('methd', 'a')\nclass A: ...", "did you mean 'method'?"),
        (
            "from subbit import register\n\n@register('method', 'a')\nclass A: ...",
            "extends subbit.methods.method",
        ),
        ("from subbit import register\nregister('partition', 'iid')(len)", "is one of subbit's own"),
        ("from subbit import register\nregister('partition', '../iid')(len)", "letters, digits"),
    ],
)
def test_a_broken_file_is_one_line(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text)
    assert found in one_line(subbit("run", "--plugin", "broken.py", folder=tmp_path, check=False))


def test_paths_that_are_no_plugins(tmp_path: Path, forgetting: None) -> None:
    for name, message in (("a.txt", "called NAME.py"), ("a-b.py", "called NAME.py"), ("a.py", "cannot be read")):
        with pytest.raises(PluginError, match=message):
            plugins.load_file(tmp_path / name)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(f"where = {folder!r}")
    plugins.load_file(tmp_path / "one" / "same.py")
    plugins.load_file(tmp_path / "one" / "same.py")
    with pytest.raises(PluginError, match=r"two plugins are called same\.py"):
        plugins.load_file(tmp_path / "two" / "same.py")


def test_what_a_killed_run_left_is_removed_with_its_plugins_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / ".run.new"
    (left / "plugins").mkdir(parents=True)
    for name in ("config.toml", "plugins/mine.py", "plugins/other.py.tmp"):
        (left / name).write_text("")
    (left / "plugins" / "notes.txt").write_text("somebody's")
    with pytest.raises(RunFolderError, match="was not made by subbit"):
        remove_unfinished(left)
    assert (left / "config.toml").exists()
    (left / "plugins" / "notes.txt").unlink()
    remove_unfinished(left)
    assert not left.exists()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "mine.py").write_text("")
    left.mkdir()
    (left / "plugins").symlink_to(tmp_path / "theirs")
    with pytest.raises(RunFolderError, match="was not made by subbit"):
        remove_unfinished(left)
    assert (tmp_path / "theirs" / "mine.py").exists()


@pytest.mark.parametrize("recorded", ["sign_vote", "../x@" + 64 * "0", 3, ["a"], f"other@{64 * 'a'}"])
def test_a_configuration_cannot_bring_its_own_code(recorded: Any) -> None:
    with pytest.raises(PluginError, match=r"needs NAME@SHA256|uses the plugin other"):
        resolve({"plugins": recorded})


# Names and numbers.


def test_names_and_numbers_that_are_taken_are_refused(forgetting: None) -> None:
    plugins.load_file(EXAMPLES / "half_codec.py")
    half = REGISTRIES["codec"].find("half")
    with pytest.raises(ConfigError, match="'half' is taken by subbit_plugin_half_codec:Half"):
        register("codec", "half")(type("Other", (half,), {"name": "half"}))
    with pytest.raises(ConfigError, match=r"'quarter' .200. clashes with 'half'"):
        register("codec", "quarter")(type("Quarter", (half,), {}))
    with pytest.raises(ConfigError, match="numbers below 192 are subbit's own"):
        register("codec", "quarter")(type("Quarter", (half,), {"number": 60}))
    with pytest.raises(ConfigError, match=r"is taken by subbit\.codecs\.dense:Dense"):
        register("codec", "dense")(type("Dense", (half,), {"number": 201}))
    with pytest.raises(ConfigError, match="calls itself 'b'"):
        register("codec", "a")(type("Third", (half,), {"name": "b", "number": 201}))
    with pytest.raises(ConfigError, match="is one of subbit's own"):
        register("method", "fedavg")(type("Mine", (REGISTRIES["method"].find("fedavg"),), {}))
    assert all(codec.number < 192 for codec in REGISTRIES["codec"].loaded() if registry.is_ours(codec))


def test_a_subclass_gets_the_name_under_which_it_is_registered(forgetting: None) -> None:
    fedavg = REGISTRIES["method"].find("fedavg")
    mine = register("method", "mine")(type("Mine", (fedavg,), {}))
    assert (mine.name, fedavg.name) == ("mine", "fedavg")
    assert resolve({"method": "mine"}).run.method == "mine"


def test_every_kind_is_known_before_anything_is_imported(tmp_path: Path) -> None:
    text = "from subbit import register\n" + "".join(
        f"\nregister({kind!r}, 'mine')(print)" for kind in registry.OWNERS if kind not in CHECKED
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("word", "near"), [("partition=dirichelt", "did you mean 'dirichlet'?"), ("partition=q", "there are: classes, ")]
)
def test_a_wrong_partition_is_found_when_the_configuration_is_built(word: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({}, [word])
    assert str(caught.value).startswith(f"partition={word.partition('=')[2]!r}: {near}")


THINGS = '''
import numpy as np
import torch
from torch import nn
from subbit import register

class Net(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.first, self.head = nn.Linear(inputs, 16), nn.Linear(16, classes)

    def forward(self, inputs):
        return self.head(self.first(inputs.flatten(1)).relu())

@register("model", "my-net")
def my_net(input_shape, classes):
    """One hidden layer."""
    return Net(int(np.prod(input_shape)), classes)

@register("dataset", "blobs")
def blobs(*, spread: int = 1):
    """Two clouds of points."""
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    points = generator.normal(size=(120, 5)) * spread + 3 * labels[:, None]
    return (points[:80].astype(np.float32), labels[:80]), (points[80:].astype(np.float32), labels[80:])

@register("partition", "by-turns")
def by_turns(split):
    """One example each, in turn."""
    return [np.arange(client, len(split.examples), split.clients) for client in range(split.clients)]

@register("partition", "twice")
def twice(split):
    return [np.arange(3)] * split.clients
'''


def test_a_model_a_data_set_and_a_partition(tmp_path: Path) -> None:
    """With workers: the class of the network comes from the plugin, too."""
    (tmp_path / "things.py").write_text(THINGS)
    words = ["model=my-net", "dataset=blobs?spread=2", "clients=3", "head=keep", "method=fedavg", "learning_rate=0.1"]
    run = ["run", "--plugin", "things.py", *words, "rounds=4"]
    subbit(*run, "partition=by-turns", "workers=2", "name=a", folder=tmp_path)
    assert summary(tmp_path / "runs/a")["accuracy"] > 0.8
    assert "in turn" in subbit("list", "partitions", "--plugin", "things.py", folder=tmp_path).stdout
    for what in ("models", "datasets"):
        assert "things" in subbit("list", what, "--plugin", "things.py", folder=tmp_path).stdout or what == "models"
    wrong = subbit(*run, "partition=twice", folder=tmp_path, check=False)
    assert "gave an example to a client twice" in one_line(wrong, 3)
    wrong = subbit(*run, "partition=by-turn", folder=tmp_path, check=False)
    assert "did you mean 'by-turns'?" in one_line(wrong)


# Packages.


def package(folder: Path, name: str, text: str) -> None:
    """What pip leaves of an installed package, as far as anybody asks for it."""
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[subbit.plugins]\n{name} = {name}\n")


def test_an_installed_package_is_found_and_a_broken_one_costs_nobody_a_run(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    package(site, "my_votes", (EXAMPLES / "sign_vote.py").read_text())
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    subbit("run", *QUICK, "name=a", "workers=2", folder=tmp_path, PYTHONPATH=path)
    assert summary(tmp_path / "runs/a")["method"] == "sign-vote"
    assert "plugins" not in tomllib.loads((tmp_path / "runs/a/config.toml").read_text())
    package(site, "broken_things", "import nothing_like_this")
    listed = subbit("list", "methods", "--json", folder=tmp_path, PYTHONPATH=path)
    assert "sign-vote" in {row["name"] for row in json.loads(listed.stdout)}
    assert listed.stderr.strip().splitlines() == [
        "the plugin 'broken_things' of the package 'broken_things' cannot be loaded: ModuleNotFoundError: "
        "No module named 'nothing_like_this'"
    ]
    done = subbit("run", *JOB, "rounds=1", "method=fedavg", "name=b", folder=tmp_path, PYTHONPATH=path)
    assert "broken" not in done.stderr
    wrong = subbit("run", "method=sign-votes", folder=tmp_path, check=False, PYTHONPATH=path).stderr
    assert "did you mean 'sign-vote'?; the plugin 'broken_things'" in wrong
    assert "Traceback" not in wrong


# Laws.

CARELESS = """
from dataclasses import dataclass
import numpy as np
from subbit import register
from subbit.codecs import Codec, Kind

@register("codec", "careless")
@dataclass(frozen=True)
class Careless(Codec):
    number = 250
    kind = Kind.BITS
    exact = True
    summary = "believes a length that it reads"

    def encode(self, payload, shared):
        return bytes([payload.size]) + payload.tobytes()

    def decode(self, data, shared):
        return np.frombuffer(data, np.uint8, count=data[0], offset=1)
"""


def test_check_says_which_laws_a_plugin_breaks(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(CARELESS)
    done = subbit("check", "careless.py", folder=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "codec careless"
    assert any(line.startswith("  ok      frames of another place") for line in lines)
    assert any(line.startswith("  failed  bytes that are cut off") and "PayloadError" in line for line in lines)
    (tmp_path / "empty.py").write_text("")
    assert "registers nothing" in one_line(subbit("check", "empty.py", folder=tmp_path, check=False))


@pytest.mark.parametrize("name", ["sign_vote", "half_codec", "geometric_median"])
def test_the_examples_keep_all_laws(name: str, tmp_path: Path) -> None:
    done = subbit("check", str(EXAMPLES / f"{name}.py"), folder=tmp_path)
    assert "hold, 0 do not" in done.stdout.splitlines()[-1]
    assert "failed" not in done.stdout
    assert all(line.startswith("  ") or "loading PyTorch" in line for line in done.stderr.splitlines()), done.stderr

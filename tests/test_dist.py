"""The built package: what is in it, and that the wheel alone, installed outside the repository, works and has types.

Dependencies come from the environment of the tests, so nothing is downloaded. `make dist-check` runs this.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist
ROOT = Path(__file__).parents[1]
SCRIPT = """
from torch import nn, zeros

from subbit import fine_tune

data = (zeros(8, 4), zeros(8).long())
result = fine_tune(nn.Linear(4, 2), [data, data], data, method="fedavg", rounds=1)
score: float = result.score
print(score, result.total_bytes, result.history[0]["uplink_bytes"])
"""
WRONG = 'from subbit import fine_tune\n\nscore: str = fine_tune(3, []).score\nfine_tune(unknown="x")\n'


def run(*words: str | Path, folder: Path, status: int = 0) -> str:
    """The output of a command that sees nothing of the repository."""
    hidden = ("PYTHONPATH", "MYPYPATH", "VIRTUAL_ENV", "PYTHONHOME")
    usual = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run([*map(str, words)], cwd=folder, env=usual, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # Not in the repository: a build of the user's own in dist/ stays.
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel, and the libraries of this one behind it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    found = folder / "env" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    run(found, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
    site = Path(run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip())
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    # Paths in such a file are searched, but their own .pth files, such as that of an editable subbit, are not read.
    (site / "libraries.pth").write_text("\n".join(libraries) + "\n")
    where = run(found, "-c", "import subbit; print(subbit.__file__)", folder=folder)
    assert Path(where.strip()).is_relative_to(site)
    return found


def test_the_wheel_has_all_that_git_has_of_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("subbit-")}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert found == {name.removeprefix("src/") for name in listed.splitlines()}
    assert {"subbit/py.typed", "subbit/pages/static/plotly-basic.min.js", "subbit/core/own_components.json"} <= found
    for model in ("vit_micro", "gpt_micro"):
        assert f"subbit/models/{model}/model.safetensors" in found


def test_the_source_archive_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        tops = {name.split("/")[1] for name in opened.getnames()}
        opened.extractall(tmp_path, filter="data")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"])
    assert tops == wanted | {"PKG-INFO", ".gitignore"}
    (unpacked,) = tmp_path.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", folder=unpacked)
    first, second = (zipfile.ZipFile(next(place.glob("*.whl"))) for place in (built, unpacked / "dist"))
    assert sorted(first.namelist()) == sorted(second.namelist())


def test_commands_and_a_run(python: Path, tmp_path: Path) -> None:
    subbit = python.with_name("subbit")
    assert "Federated fine-tuning" in run(subbit, "--help", folder=tmp_path)
    assert "deltamask" in run(subbit, "list", "methods", folder=tmp_path)
    assert run(python, "-c", "import subbit; print(subbit.__version__)", folder=tmp_path).strip()
    words = ["rounds=1", "clients=2", "limit=40", "test_limit=20"]  # The bundled network and digits.
    assert "results in runs/deltamask-1/" in run(subbit, "run", *words, folder=tmp_path)
    assert "0 damaged" in run(subbit, "check", "runs/deltamask-1", folder=tmp_path)


def test_the_first_steps_of_a_new_user(python: Path, tmp_path: Path) -> None:
    """docs/first-model.md in an empty folder, with the wheel alone."""
    script = runpy.run_path(str(ROOT / "scripts" / "first_model.py"))
    script["write_pictures"](tmp_path)
    page = script["PAGE"].read_text()

    def call(command: str) -> str:
        words = command.split()
        return run(
            python.with_name(words[0]), *words[1:], *(["rounds=1"] if words[1] == "run" else []), folder=tmp_path
        )

    found = script["replayed"](page, call)
    assert "photo.png,seven," in found
    assert list(tmp_path.glob("my-model/model.safetensors"))


def test_a_script_of_a_user_has_types(python: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    mypy = [python, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache"]
    (tmp_path / "wrong.py").write_text(WRONG)
    found = run(*mypy, "script.py", "wrong.py", folder=tmp_path, status=1)
    assert "script.py:" not in found
    assert "wrong.py:3: error: Incompatible types in assignment" in found
    assert 'wrong.py:3: error: Argument 1 to "fine_tune" has incompatible type "int"' in found
    assert "wrong.py:4: error: Missing positional arguments" in found
    assert len(run(python, "script.py", folder=tmp_path).split()) == 3

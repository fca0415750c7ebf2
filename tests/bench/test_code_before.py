"""The code before the engine was made faster is taken from the history, or the reason is said why it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks.bench.engine.before import KEPT, PARTS, BeforeError, code_before
from benchmarks.bench.engine.child import run_child

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
WHO = ["-c", "user.name=some", "-c", "user.email=some@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the parts of a version; `committed` makes the commit."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # In a hook of git they name the repository of the hook.
    folder = tmp_path / "repository"
    for part in PARTS:
        (folder / part).mkdir(parents=True)
        (folder / part / "file.py").write_text(f"{part} then\n")
    git(tmp_path, "init", "--quiet", str(folder))
    return folder


def committed(repository: Path) -> str:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "some")
    return git(repository, "rev-parse", "HEAD")


@needs_git
def test_code_before_is_taken_once(repository: Path) -> None:
    commit = committed(repository)
    (repository / "src" / "file.py").write_text("src now\n")
    folder = code_before(repository, commit)
    assert {part: (folder / part / "file.py").read_text() for part in PARTS} == {
        part: f"{part} then\n" for part in PARTS
    }
    assert list((repository / KEPT).iterdir()) == [folder]
    shutil.rmtree(repository / ".git")
    assert code_before(repository, commit) == folder


@needs_git
def test_shallow_clone_says_what_to_do(repository: Path, tmp_path: Path) -> None:
    commit = committed(repository)
    (repository / "src" / "file.py").write_text("src now\n")
    committed(repository)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", repository.as_uri(), str(shallow))
    with pytest.raises(BeforeError, match=rf"(?s){commit[:7]}.*git fetch --unshallow$"):
        code_before(shallow, commit)
    assert not (shallow / KEPT).exists()
    git(shallow, "fetch", "--quiet", "--unshallow")
    assert (code_before(shallow, commit) / "src" / "file.py").read_text() == "src then\n"


def test_without_git_or_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(BeforeError, match="git fetch --unshallow"):
        code_before(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BeforeError, match="comes from git"):
        code_before(tmp_path)


@needs_git
@pytest.mark.parametrize("target", [Path("..", "..", "..", "outside"), Path(os.sep, "outside")], ids=str)
def test_links_out_of_the_folder_are_refused(repository: Path, target: Path) -> None:
    (repository / "src" / "link").symlink_to(target)
    with pytest.raises(BeforeError, match=r"cannot be extracted: .*Link"):
        code_before(repository, committed(repository))
    assert not list((repository / KEPT).iterdir())


def test_child_takes_the_code_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "src" / "subbit").mkdir(parents=True)
    (tmp_path / "src" / "subbit" / "__init__.py").write_text("age = 'old'\n")
    words = ["-c", "import json, os, subbit; print(json.dumps({'age': subbit.age, 'folder': os.getcwd()}))"]
    found = run_child(words, root=tmp_path, source=tmp_path / "src").found
    assert found == {"age": "old", "folder": str(tmp_path.resolve())}

"""Compiled kernels are kept, thrown away when any file of the codecs changes, and all there after `subbit compile`."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import subbit.core.jit
from subbit.codecs.sampler import hash_place
from subbit.conformance.compile_kernels import compile_kernels, compile_modules

CALLER = """
from subbit_jit_copy.codecs.called import inner
from subbit_jit_copy.core.jit import njit

@njit
def outer(x):
    return inner(x) + 1
"""
CALLED = """
from subbit_jit_copy.core.jit import njit

@njit
def inner(x):
    return x * FACTOR
"""
OUTER = "from subbit_jit_copy.models.caller import outer; print(outer(10))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Kernels that call each other, in a package of their own."""
    made = tmp_path / "subbit_jit_copy"
    for folder in (made, made / "core", made / "codecs", made / "models"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    shutil.copy(subbit.core.jit.__file__, made / "core" / "jit.py")
    (made / "models" / "caller.py").write_text(CALLER)
    return made


def outer_of_ten(package: Path, factor: int, **environment: str) -> int:
    (package / "codecs" / "called.py").write_text(CALLED.replace("FACTOR", str(factor)))
    return printed(package, OUTER, **environment)


def printed(package: Path, code: str, **environment: str) -> int:
    command, variables = [sys.executable, "-c", code], {**os.environ, **environment}
    done = subprocess.run(command, cwd=package.parent, env=variables, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_kernel_is_compiled_anew_when_a_kernel_that_it_calls_has_changed(package: Path) -> None:
    assert outer_of_ten(package, 2) == 21
    assert outer_of_ten(package, 300) == 3001
    assert list(package.glob("*/__pycache__/*.nbi"))


def test_kernels_are_kept_in_the_home_or_nowhere_where_their_folder_cannot_be_written(package: Path) -> None:
    """A file where the folder would be, which stops root too."""
    for folder in ("codecs", "models"):
        (package / folder / "__pycache__").touch()
    home, no_home = package.parent / "home", package.parent / "no-home"
    no_home.touch()
    assert outer_of_ten(package, 2, HOME=str(home), XDG_CACHE_HOME=str(home)) == 21
    assert list(home.rglob("*.nbi"))
    assert outer_of_ten(package, 3, HOME=str(no_home), XDG_CACHE_HOME=str(no_home)) == 31


def test_every_kernel_is_in_the_cache_after_subbit_compile() -> None:
    """A kernel that no codec and no method calls is either not needed or not exercised."""
    files = compile_kernels()
    assert len(files) > 50
    assert [name for name, file in files.items() if not file.exists()] == []


def test_a_kernel_is_copied_and_pickled_like_a_function() -> None:
    assert copy.deepcopy(hash_place) is hash_place
    assert pickle.loads(pickle.dumps(hash_place)) is hash_place


def test_a_kernel_whose_source_changed_after_it_was_read_is_compiled_anew(package: Path) -> None:
    """The process compiles what it has read, late; the next one must not take that for what is in the file."""
    (package / "codecs" / "called.py").write_text(CALLED.replace("FACTOR", "2"))
    caller, changed = package / "models" / "caller.py", CALLER.replace("+ 1", "+ 200")
    change = f"import pathlib; pathlib.Path({str(caller)!r}).write_text({changed!r})"
    read, call = OUTER.split("; ")
    assert printed(package, "; ".join((read, change, call))) == 21
    assert printed(package, OUTER) == 220


def test_bytecode_is_kept_where_python_does_not_keep_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subbit, "__file__", str(package / "__init__.py"))
    compile_modules()
    assert list((package / "models" / "__pycache__").glob("caller.*.pyc"))

"""Compiled kernels are kept, and thrown away when any file of the codecs changes, wherever they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import subbit.core.jit

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


def test_a_kernel_is_compiled_anew_when_a_kernel_that_it_calls_has_changed(tmp_path: Path) -> None:
    package = tmp_path / "subbit_jit_copy"
    for folder in (package, package / "core", package / "codecs", package / "models"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    shutil.copy(subbit.core.jit.__file__, package / "core" / "jit.py")
    (package / "models" / "caller.py").write_text(CALLER)

    def outer_of_ten(factor: int) -> int:
        (package / "codecs" / "called.py").write_text(CALLED.replace("FACTOR", str(factor)))
        command = [sys.executable, "-c", "from subbit_jit_copy.models.caller import outer; print(outer(10))"]
        return int(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)

    assert outer_of_ten(2) == 21
    assert outer_of_ten(300) == 3001
    assert list(package.glob("*/__pycache__/*.nbi"))

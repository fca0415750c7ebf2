"""Turns on a GPU that is only pretended (tests/pretended_gpu.py): every tensor is on the right device."""

from __future__ import annotations

import subprocess
import sys

import pytest

from subbit.conformance.problems import MODULES

backend_registration = pytest.importorskip("torch.utils.backend_registration")


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"), reason="this torch has no such thing"
)
@pytest.mark.parametrize("kind", MODULES)
def test_every_method_takes_its_turn_on_a_pretended_gpu(kind: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.pretended_gpu", kind], capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr

"""A virtual environment for pfl, which pins versions of its own. Made once, in the cache folder of the user."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

PACKAGES = ("pfl==0.6.0", "torch>=2.6,<2.14", "transformers>=5.0,<6", "safetensors>=0.5,<1")
"""torch by the range of pyproject.toml, so that pip takes a build without CUDA where one is offered."""
MINUTES = 15


def pfl_python() -> str:
    """The interpreter of the environment. Raises `subprocess.SubprocessError` if pip cannot make it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "subbit" / "bench-pfl"
    python, ready = folder / "bin" / "python", folder / "ready"
    wanted = "\n".join(PACKAGES)
    if not ready.exists() or ready.read_text() != wanted:
        venv.create(folder, clear=True, with_pip=True)
        quiet = ["--quiet", "--disable-pip-version-check"]
        command = [str(python), "-m", "pip", "install", *quiet, *PACKAGES]
        subprocess.run(command, check=True, timeout=60 * MINUTES, capture_output=True, text=True)
        ready.write_text(wanted)  # Last, so that an environment half made is made again.
    return str(python)

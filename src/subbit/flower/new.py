"""`subbit flower new DIR`: creates a small, complete Flower app as a starting point."""

from __future__ import annotations

from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from typing import Literal

from subbit.core.errors import ConfigError

BESIDE = ("pyproject.toml", "README.md")
Kind = Literal["own_template", "template"]
PACKAGES: dict[Kind, tuple[str, ...]] = {
    "own_template": ("__init__.py", "app.py"),
    "template": ("__init__.py", "client_app.py", "measure.py", "server_app.py", "task.py"),
}
"""Files by template: an app of two functions, run by subbit; or one in plain Flower, with compression."""


def write_new_app(directory: Path, name: str | None = None, kind: Kind = "own_template") -> list[Path]:
    """Write the app into a new or empty directory; its package is called `name`, or like the directory."""
    package = (name or directory.resolve().name).replace("-", "_").replace(" ", "_").lower()
    if not package.isidentifier() or iskeyword(package):
        raise ConfigError(f"{package!r} cannot be the name of a Python package: give the app another with --name")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} exists and is not an empty directory: nothing was written")
    template, written = files("subbit.flower") / kind, []
    for target in (*BESIDE, *(f"{package}/{file}" for file in PACKAGES[kind])):
        text = (template / f"{Path(target).name}.template").read_text(encoding="utf-8")
        path = directory / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("APP_NAME", package).replace("APP-NAME", package.replace("_", "-")), "utf-8")
        written.append(path)
    return written

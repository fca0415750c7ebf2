"""`subbit flower new DIR`: creates a small, complete Flower app with compressed replies as a starting point."""

from __future__ import annotations

from importlib.resources import files
from keyword import iskeyword
from pathlib import Path

from subbit.core.errors import ConfigError

BESIDE = ("pyproject.toml", "README.md")
PACKAGE = ("__init__.py", "client_app.py", "measure.py", "server_app.py", "task.py")


def write_new_app(directory: Path, name: str | None = None) -> list[Path]:
    """Write the app into a new or empty directory; its package is called `name`, or like the directory."""
    package = (name or directory.resolve().name).replace("-", "_").replace(" ", "_").lower()
    if not package.isidentifier() or iskeyword(package):
        raise ConfigError(f"{package!r} cannot be the name of a Python package: give the app another with --name")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} exists and is not an empty directory: nothing was written")
    template, written = files("subbit.flower") / "template", []
    for target in (*BESIDE, *(f"{package}/{file}" for file in PACKAGE)):
        text = (template / f"{Path(target).name}.template").read_text(encoding="utf-8")
        path = directory / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("APP_NAME", package).replace("APP-NAME", package.replace("_", "-")), "utf-8")
        written.append(path)
    return written

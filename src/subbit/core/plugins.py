"""Third-party methods, codecs and other components, from installed packages or from single files.

A package declares its modules as entry points of the group `subbit.plugins`; importing a module registers its
components. Packages are loaded once, when an unknown name is looked up or all names are listed. If one cannot be
loaded, that is a warning, and runs that do not need it continue.

A file is given by its path (`--plugin FILE`). It is a single module and imports nothing from its own folder. It is read
once: worker processes and Flower nodes get the same bytes even if the file changes. The configuration of a run records
every loaded file with its SHA-256 (`plugins = "NAME@SHA256 ..."`). A process that does not have these bytes rejects the
configuration.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from subbit.core.errors import PluginError

GROUP = "subbit.plugins"
NONE = "none"
FOLDER = "plugins"
"""Where the files are in a run folder or a Flower app."""
RECORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)@([0-9a-f]{64})")
log = logging.getLogger("subbit")


@dataclass(frozen=True)
class Plugin:
    """One file and its contents when it was read."""

    name: str
    source: bytes
    path: str
    """Where the file came from, for error messages."""

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def module(self) -> str:
        """Differs from the file name, so that a plugin called `random.py` shadows nothing."""
        return f"subbit_plugin_{self.name}"

    def __str__(self) -> str:
        return f"{self.name}.py (SHA-256 {self.sha256[:16]}...)"


class Plugins(tuple[Plugin, ...]):
    """Unpickling loads the plugins, so pickle them before any objects of their classes."""

    def load(self) -> Plugins:
        for plugin in self:
            load_plugin(plugin)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_all, (tuple(self),)


_loaded: dict[str, Plugin] = {}
_offered: dict[str, Path] = {}
_broken: list[str] | None = None


def load_packages() -> None:
    """Import the modules that installed packages declare, once."""
    global _broken
    if _broken is not None:
        return
    _broken = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            package = entry.dist.name if entry.dist is not None else entry.value
            reason = f"the plugin {entry.name!r} of the package {package!r} cannot be loaded: {_one_line(error)}"
            _broken.append(reason)
            log.warning("%s", reason)


def broken_packages() -> list[str]:
    """Why packages could not be loaded, if loading them was tried."""
    return list(_broken or ())


def load_file(path: Path) -> Plugin:
    plugin = read_plugin(path)
    load_plugin(plugin)
    return plugin


def read_plugin(path: Path) -> Plugin:
    if path.suffix != ".py" or not path.stem.isidentifier() or not path.stem.isascii():
        raise PluginError(f"plugin {path}: needs a file called NAME.py, with letters, digits and '_' in its name")
    try:
        return Plugin(path.stem, path.read_bytes(), str(path.absolute()))
    except OSError as error:
        raise PluginError(f"plugin {path} cannot be read: {error.strerror}") from None


def load_plugin(plugin: Plugin) -> None:
    """Execute the file, which registers its components. Does nothing if the same bytes are already loaded."""
    known = _loaded.get(plugin.name)
    if known is not None:
        if known.source != plugin.source:
            raise PluginError(f"two plugins are called {plugin.name}.py: {known.path} and {plugin.path}; rename one")
        return
    module = ModuleType(plugin.module)
    module.__file__ = plugin.path
    sys.modules[plugin.module] = module
    try:
        exec(compile(plugin.source, plugin.path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[plugin.module]
        raise PluginError(f"plugin {plugin.path}{_line_of(error, plugin.path)}: {_one_line(error)}") from error
    _loaded[plugin.name] = plugin


def _load_all(plugins: Iterable[Plugin]) -> Plugins:
    return Plugins(plugins).load()


def loaded_plugins() -> Plugins:
    return Plugins(_loaded[name] for name in sorted(_loaded))


def offer_folder(folder: Path) -> None:
    """Make the files of this folder available: they are loaded when a configuration needs them."""
    _offered.update({path.stem: path for path in folder.glob("*.py")})


def needed_plugins(recorded: Any) -> str | None:
    """Return the value of the key `plugins` after loading everything that it names.

    Without a value: the plugins loaded in this process. A saved configuration names its plugins, or "none".
    """
    if recorded is None or recorded == "":
        return " ".join(f"{plugin.name}@{plugin.sha256}" for plugin in loaded_plugins()) or None
    if recorded == NONE:
        return None
    for name, digest in parse_record(recorded):
        if name not in _loaded and name in _offered:
            load_file(_offered[name])
        if name not in _loaded:
            raise PluginError(
                f"this run uses the plugin {name}.py (SHA-256 {digest[:16]}...), which is code: give it with "
                f"--plugin {name}.py"
            )
        if _loaded[name].sha256 != digest:
            raise PluginError(
                f"this run uses {name}.py with SHA-256 {digest[:16]}..., but {_loaded[name].path} has "
                f"{_loaded[name].sha256[:16]}...: give the file as it was (a new run takes it as it is with plugins=)"
            )
    return str(recorded)


def parse_record(recorded: Any) -> list[tuple[str, str]]:
    """Parse "NAME@SHA256 NAME@SHA256" into names and checksums."""
    words = recorded.split() if isinstance(recorded, str) else [""]
    found = [RECORD.fullmatch(word) for word in words]
    if None in found:
        raise PluginError(f"plugins={recorded!r}: needs NAME@SHA256, as subbit writes it, or none")
    return [(match[1], match[2]) for match in found if match is not None]


def recorded_files(recorded: str | None) -> dict[str, bytes]:
    """The plugin files of a resolved configuration, by their path in a run folder or an app."""
    names = [] if recorded is None else [name for name, _ in parse_record(recorded)]
    return {f"{FOLDER}/{name}.py": _loaded[name].source for name in names}


def _one_line(error: BaseException) -> str:
    text = getattr(error, "msg", None) if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}".replace("\n", " ").removesuffix(": ")


def _line_of(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}" if lines else ""

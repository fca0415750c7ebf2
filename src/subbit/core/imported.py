"""Functions of users that a configuration names as `package.module:name`."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from subbit.core.blame import one_line
from subbit.core.errors import PluginError, SubbitError
from subbit.core.registry import nearest

PATTERN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", re.ASCII)
ANY = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def is_imported(name: str) -> bool:
    return PATTERN.fullmatch(name) is not None and not Path(name).exists()


def import_function(what: str, name: str) -> Callable[..., Any]:
    """The function of this name. As with `python -m`, modules in the current folder can be imported.

    `what` is the key in error messages.
    """
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)  # To stay: worker processes get this path and import the module too.
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except SubbitError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            found = f"no module {error.name!r}, neither in this folder nor installed"
        else:
            found = f"{one_line(error)}{_place(error)}"
        raise PluginError(f"{what}={name}: {found}") from error
    try:
        function = attrgetter(attribute)(module)
    except AttributeError:
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise PluginError(f"{what}={name}: {module_name} has no {attribute!r}: {nearest(attribute, own)}") from None
    if not callable(function):
        raise PluginError(f"{what}={name}: found {type(function).__name__}; needs a function")
    made: Callable[..., Any] = function
    return made


def call_imported(what: str, name: str, offered: Mapping[str, Any]) -> Any:
    """Call the function of this name with those of the offered arguments that its signature has."""
    function = import_function(what, name)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []  # Of C code, which does not say.
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name for parameter in parameters if parameter.kind not in ANY}
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.kind not in (*ANY[1:], parameter.VAR_KEYWORD)
        if needed and (parameter.name not in offered or parameter.kind is parameter.POSITIONAL_ONLY):
            raise PluginError(
                f"{what}={name}: needs an argument {parameter.name!r} without a default; given by name are "
                f"{', '.join(offered)}"
            )
    try:
        return function(**{key: value for key, value in offered.items() if takes_any or key in named})
    except SubbitError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{what}={name}: {one_line(error)}{_place(error, function)}") from error


def _place(error: BaseException, function: Any = None) -> str:
    """File and line, in brackets: the last one in the user's own file, else where the error was raised."""
    import traceback

    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    here = [frame for frame in frames if frame.filename == file or Path(frame.filename).is_relative_to(Path.cwd())]
    packages = [frame for frame in here if "site-packages" not in frame.filename]
    chosen = (packages or here or frames)[-1:]
    return "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in chosen)

"""Errors in the code of plugins, as one line that names the component and the place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from subbit.core.errors import PluginError, SubbitError
from subbit.core.registry import is_ours


@contextmanager
def blaming(what: str, thing: Any) -> Iterator[None]:
    """Turn an exception of somebody else's component into a `PluginError`. Ours are bugs and keep their traceback."""
    try:
        yield
    except SubbitError:
        raise
    except Exception as error:
        if is_ours(thing):
            raise
        raise PluginError(f"{what}: {one_line(error)}{place_of(error)}") from error


def one_line(error: BaseException) -> str:
    """Type and message, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def place_of(error: BaseException) -> str:
    """File and line where it was raised, in brackets."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""

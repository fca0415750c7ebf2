"""`subbit check my_method.py`: checks the laws of everything that a plugin registers, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from subbit.conformance.laws import Law, laws_of
from subbit.core.busy import busy_with
from subbit.core.errors import PluginError, SubbitError
from subbit.core.plugins import load_file
from subbit.core.registry import OWNERS, REGISTRIES


def check_plugin(path: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row for each law that was tried, with the reason why it does not hold, or None; told line by line."""
    plugin = load_file(path)
    found = {kind: REGISTRIES[kind].of_module(plugin.module) for kind in OWNERS}
    if not any(found.values()):
        raise PluginError(f'{path} registers nothing: it needs @register("method", "my-name") or the like')
    rows: list[dict[str, Any]] = []
    for kind, things in found.items():
        for name, thing in things.items():
            tell(f"{kind} {name}")
            if not laws_of(kind):
                tell("  ok      is registered (there are no laws for this kind)")
            for law, subject in _trials(kind, name, thing):
                busy_with(f"{kind} {name}: {law.title}")
                reason = _broken(law, subject)
                rows.append({"kind": kind, "name": name, "law": law.title, "reason": reason})
                tell(f"  ok      {law.title}" if reason is None else f"  failed  {law.title}: {reason}")
    return rows


def _trials(kind: str, name: str, thing: Any) -> Iterator[tuple[Law, Any]]:
    """Each law, with the subject to test."""
    subjects: list[Any] = [name] if kind == "method" else [thing]
    if kind == "codec":
        from subbit.conformance.cases import subjects as of_codecs

        subjects = list(of_codecs([thing]))
    for law in laws_of(kind):
        for subject in subjects:
            yield law, subject


def _broken(law: Law, subject: Any) -> str | None:
    """Why the law does not hold. Any exception of a plugin counts as a failure, and the next law is still tried."""
    try:
        law.holds(subject)
    except SubbitError as error:
        return str(error)
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f" ({Path(frame.tb_frame.f_code.co_filename).name}, line {frame.tb_lineno})" if frame else ""
        return f"{type(error).__name__}: {error}{where}".replace("\n", " ")
    return None

"""subbit: federated fine-tuning below one bit per parameter, in both directions.

The Python API is `fine_tune`, `load` and `load_module`. They need torch and are therefore imported on first use.
`write_report` makes the report of a run folder.
`register` adds your own methods, codecs and other components: see docs/extending.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subbit.api import fine_tune as fine_tune
    from subbit.core.registry import register as register
    from subbit.export.load_module import load_module as load_module
    from subbit.export.resident import load as load
    from subbit.pages.write_report import write_report as write_report

__version__ = "0.1.0"
__all__ = ["__version__", "fine_tune", "load", "load_module", "register", "write_report"]


def __getattr__(name: str) -> Any:
    if name == "fine_tune":
        from subbit.api import fine_tune

        return fine_tune
    if name == "load":
        from subbit.export.resident import load

        return load
    if name == "load_module":
        from subbit.export.load_module import load_module

        return load_module
    if name == "register":
        from subbit.core.registry import register

        return register
    if name == "write_report":
        from subbit.pages.write_report import write_report

        return write_report
    raise AttributeError(f"module 'subbit' has no attribute {name!r}")

"""Numbers as people read them. What is no number stays what it is, so that a damaged file is shown and not hidden."""

from __future__ import annotations

import math

MEGABYTE = 1e6
NONE = "–"  # noqa: RUF001


def number(value: object, digits: int = 4) -> str:
    """A score: four decimals, fewer where it is large.

    >>> number(0.94166), number(1234.567), number(None), number(float("nan"))
    ('0.9417', '1,234.6', '–', 'not a number')
    """
    if value is None:
        return NONE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{'-' if value < 0 else ''}infinite"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def whole(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else number(value)


def megabytes(value: object) -> str:
    """Bytes as megabytes: three decimals, more where that would be zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return number(value)
    found = value / MEGABYTE
    return f"{found:.3f}" if not found or found >= 0.01 else f"{found:.6f}"


def share(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return number(value)
    return f"{value:.0%}"


def finite(value: object) -> float | None:
    """For a plot: none where there is no number to draw."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None

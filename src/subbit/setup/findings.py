"""What `subbit doctor` finds, one line each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do about it, where it is not as it should be."""
    essential: bool = False
    """Whether a run of the bundled model needs it."""

    @property
    def state(self) -> str:
        return "ok" if self.ok else "broken" if self.essential else "missing"

    @property
    def stops_runs(self) -> bool:
        return self.essential and not self.ok

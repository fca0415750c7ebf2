"""Parameter-efficient tuning: few parameters beside frozen ones, added to any transformer in place."""

from subbit.peft.tuning import TUNINGS, Tuning, tune

__all__ = ["TUNINGS", "Tuning", "tune"]

"""Parameter-efficient tuning: few parameters beside frozen ones, added to any transformer in place."""

from subbit.peft.tuning import TUNINGS as TUNINGS
from subbit.peft.tuning import Tuning as Tuning

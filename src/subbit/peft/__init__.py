"""Parameter-efficient tuning: a few trained parameters next to frozen ones, added in place to any transformer."""

from subbit.peft.tuning import TUNINGS as TUNINGS
from subbit.peft.tuning import Tuning as Tuning

"""A tuning by its name, with those of the given options that it has."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from subbit.peft import TUNINGS


def tune(module: nn.Module, name: str, key: int, **options: Any) -> str:
    piece = TUNINGS.find(name)
    own = {field.name for field in dataclasses.fields(piece)}
    selection: str = piece(**{option: value for option, value in options.items() if option in own}).tune(module, key)
    return selection

"""Numbers as a paper prints them: the text is kept, what is compared is the number in it.

>>> printed("93.50 ±0.019")
Printed(text='93.50 ±0.019', value=93.5, spread=0.019, rounding=0.005)
>>> printed("0.18M").value, printed("2.1e-3").rounding
(0.18, 5e-05)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from subbit.core.errors import ConfigError

NUMBER = r"[+-]?\d[\d,]*(?:\.(?P<{0}decimals>\d+))?(?:e(?P<{0}exponent>[+-]?\d+))?"
FORM = re.compile(
    rf"(?P<value>{NUMBER.format('')}) *(?P<unit>[A-Za-z%]*) *(?:± *(?P<spread>{NUMBER.format('spread_')}))?"
)


@dataclass(frozen=True)
class Printed:
    text: str
    value: float
    spread: float
    """Behind the sign ±; 0 if there is none."""
    rounding: float
    """Half a unit of the last printed digit: a number nearer than this is printed the same."""

    def times(self, factor: float) -> Printed:
        """In another unit, e.g. percent for a printed share."""
        return Printed(self.text, self.value * factor, self.spread * factor, self.rounding * factor)


def printed(text: str) -> Printed:
    found = FORM.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"printed value {text!r}: needs a number, e.g. 93.50, 93.50 ±0.02 or 0.18M")
    exponent = int(found["exponent"] or 0)
    unit = 10.0 ** (exponent - len(found["decimals"] or ""))
    spread = float(found["spread"].replace(",", "")) if found["spread"] else 0.0
    return Printed(text, float(found["value"].replace(",", "")), spread, round(unit / 2, 12))

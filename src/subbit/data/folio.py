"""Plays as printed in the First Folio of 1623, <play>_gut_f.txt of the same package: *haue*, *vnto*, *Maiesty*.

In these files a speech is

       Hor. Well, sit we downe,               an indented name with a full stop, and the first line
    And let vs heare Barnardo speake of this  the lines up to the next name, an empty line or a direction

Names are abbreviated as in print, so that one person may be two roles (*Bar*, *Barn*).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SUFFIX = "_gut_f.txt"
NAME = re.compile(r"[ \t]{1,4}([A-Z0-9][A-Za-z0-9' ]{0,19})\.[ \t]*(.*)")
DIRECTION = re.compile(r"(?:Enter|Exit|Exeunt|Manet|Actus|Scena|Scoena|Flourish|Alarum|Finis)\b")
NAMES = {
    "all_is_well_that_ends_well": "alls_well_that_ends_well",
    "anthonie_and_cleopatra": "antony_and_cleopatra",
    "comedy_of_errours": "comedy_of_errors",
    "loves_labour_lost": "loves_labours_lost",
    "midsummer_nights_dreame": "midsummer_nights_dream",
    "titus_andronicus": "tragedy_of_titus_andronicus",
    "twelfe-night": "twelfth_night",
}
"""Of files, where they are not those of the other spelling."""


def read_folio(text: str) -> Iterator[tuple[str, str]]:
    """The role, in capitals, and the words of each speech of a play.

    >>> list(read_folio("  Hor. Stay: speake.\\nI Charge thee.\\nExit the Ghost.\\n\\n  Mar. 'Tis gone"))
    [('HOR', 'Stay: speake.\\nI Charge thee.'), ('MAR', "'Tis gone")]
    """
    role, speech = "", list[str]()
    for line in [*text.splitlines(), ""]:
        named = NAME.fullmatch(line.rstrip())
        words = line.strip()
        if named or not words or DIRECTION.match(words):
            if role and speech:
                yield role, "\n".join(speech)
            role, speech = (named[1].strip().upper(), [named[2]] if named[2] else []) if named else ("", [])
        elif role:
            speech.append(words)

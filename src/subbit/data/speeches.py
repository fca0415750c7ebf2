"""Shakespeare's plays by role, for language models: `shakespeare` with objective=language.

Roles and their split are those of `plays`. `plays=histories,tragedies` takes only these; a kind is one of `KINDS`, and
names of plays may be given too. `roles=16` takes only those with the longest texts to train on, so that the test texts
are theirs too. `spelling=folio` reads the plays as printed in 1623.
"""

from __future__ import annotations

from pathlib import Path

from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Source
from subbit.data.folio import NAMES, SUFFIX, read_folio
from subbit.data.packing import Texts, packed_source, rows_source
from subbit.data.plays import Speeches, find_plays, split_speeches

COMEDIES = (
    "alls_well_that_ends_well",
    "as_you_like_it",
    "comedy_of_errors",
    "cymbeline",
    "loves_labours_lost",
    "measure_for_measure",
    "merchant_of_venice",
    "merry_wives_of_windsor",
    "midsummer_nights_dream",
    "much_ado_about_nothing",
    "pericles",
    "taming_of_the_shrew",
    "tempest",
    "troilus_and_cressida",
    "twelfth_night",
    "two_gentlemen_of_verona",
    "winters_tale",
)
HISTORIES = (
    "henry_iv_part_1",
    "henry_iv_part_2",
    "henry_v",
    "henry_vi_part_1",
    "henry_vi_part_2",
    "henry_vi_part_3",
    "henry_viii",
    "john",
    "richard_ii",
    "richard_iii",
)
TRAGEDIES = (
    "antony_and_cleopatra",
    "coriolanus",
    "hamlet",
    "julius_caesar",
    "lear",
    "macbeth",
    "othello",
    "romeo_and_juliet",
    "timon_of_athens",
    "tragedy_of_titus_andronicus",
)
KINDS = {"comedies": COMEDIES, "histories": HISTORIES, "tragedies": TRAGEDIES}
"""The comedies, with the romances, are what subbit/gpt-micro was pre-trained on."""


def open_speeches(
    folder: Path,
    *,
    tokenizer: str = "words",
    length: int = 128,
    pack: str = "true",
    plays: str = "all",
    roles: int | None = None,
    spelling: str = "modern",
) -> tuple[Source, Source]:
    if pack not in ("true", "false"):
        raise ConfigError(f"{folder}: found pack={pack}; need true or false")
    if length < 2:
        raise ConfigError(f"{folder}: found length={length}; need at least 2 tokens, the second follows the first")
    if spelling not in ("modern", "folio"):
        raise ConfigError(f"{folder}: found spelling={spelling}; need modern or folio")
    folio = spelling == "folio"
    chosen = _choose(folder, _folio_plays(folder) if folio else find_plays(folder), plays)
    train_speeches, test_speeches = split_speeches(folder, chosen, read_folio if folio else None)
    longest = sorted(train_speeches, key=lambda role: (-sum(map(len, train_speeches[role])), role))[:roles]
    splits = [{role: split[role] for role in sorted(longest)} for split in (train_speeches, test_speeches)]
    make = packed_source if pack == "true" else rows_source
    train, test = (
        make(_texts(f"{folder}, {name}", split), tokenizer, length)
        for name, split in zip(("train", "test"), splits, strict=True)
    )
    return train, test


def _folio_plays(folder: Path) -> dict[str, Path]:
    return {NAMES.get(name, name): path for name, path in find_plays(folder, SUFFIX).items()}


def _choose(folder: Path, found: dict[str, Path], plays: str) -> dict[str, Path]:
    if plays == "all":
        return found
    wanted = [play for word in plays.split(",") for play in KINDS.get(word.strip(), (word.strip(),))]
    for play in wanted:
        if play not in found:
            raise DataError(
                f"{folder}: found no play {play!r}; need all, {', '.join(KINDS)}, or names of plays such as "
                f"{', '.join(list(found)[:3])}"
            )
    return {play: found[play] for play in sorted(set(wanted))}


def _texts(where: str, speeches: Speeches) -> Texts:
    pairs = [(role, speech) for role, own in speeches.items() for speech in own]
    return Texts(where, [speech for _, speech in pairs], [role for role, _ in pairs])

"""What a key means, and which keys are rejected because of it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from subbit.core.errors import ConfigError
from subbit.core.pieces import DOWN, Tables, full_name
from subbit.core.values import nearest, require

Pairs = list[tuple[str, Any]]
RUN = "run"
"""The table of the run itself. Its keys need its name only where they are ambiguous."""


def refuse_two_meanings(method: str, pieces: Tables, given: Pairs, run_keys: Mapping[str, Any]) -> None:
    """Reject a key of the run that a chosen piece has too, unless the piece's own is given by its full name."""
    full = {place for word, _ in given if "." in word for place in pieces.places(word)}
    for word in pieces.tables[""].options():
        require(word not in run_keys, f"method {method!r} has a key {word!r}, which is one of the run: rename it")
    for word, value in given:
        places = pieces.places(word) if word in run_keys else []
        if places and not full.issuperset(places):
            meant = " or ".join([f"{RUN}.{word}", *map(full_name, places)])
            raise ConfigError(f"{word}={value!r} can mean two things: write {meant}")


def refuse_other_method(method: Any, pieces: Tables, given: Pairs) -> None:
    """Reject a key that changes what the method's name stands for, however it is written."""
    fixed = {place: (word, value) for word, value in method.words.items() for place in pieces.places(word)}
    for word, value in given:
        for place in pieces.places(word):
            key, stands_for = fixed.get(place, (word, value))
            if str(value) != str(stands_for):
                raise ConfigError(
                    f"{word}={value!r}: method={method.name} is {key}={stands_for}; see `subbit list methods`"
                )


def refuse_lost_privacy(method: str, skipped: Mapping[str, Any]) -> None:
    for key, value in skipped.items():
        if key.rpartition(".")[2] == "privacy" and value != "none":
            raise ConfigError(
                f"{key}={value}: method {method!r} has no privacy, and a comparison does not leave it out: give it to "
                f"those that have it, e.g. fedavg:privacy={value}"
            )


def hint(key: str, pieces: Tables, run_keys: Mapping[str, Any]) -> str:
    """What else may have been meant by an unknown key."""
    owners, hindrance = pieces.owners(key), pieces.hindered(key)
    if hindrance is not None:
        return f"it has no effect with {hindrance}"
    if "." not in key and pieces.knows(f"{DOWN}_{key}"):
        return f"did you mean '{DOWN}_{key}'?" + (f" Without {DOWN}_ it belongs to {owners[0]}" if owners else "")
    if owners:
        return f"it belongs to {' or '.join(owners)}"
    own = pieces.words()
    # A key of the method is meant more often than one of the run that is as near.
    return nearest(key, own if get_close_matches(key, own, n=1, cutoff=0.75) else [*run_keys, *own])

"""All keys that a result depends on, defaults included: a default that changes makes a kept result void."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from subbit.arena.jobs import NO_MATTER
from subbit.config.resolve import Settings, resolve
from subbit.core.pieces import as_words, flattened

Keys = dict[str, Any]


def keys_of(settings: Settings) -> Keys:
    """Except the seed."""
    run = {key: value for key, value in dataclasses.asdict(settings.run).items() if key not in (*NO_MATTER, "seed")}
    method = settings.run.method
    own = {f"{method}.{key}": value for key, value in flattened(as_words(settings.parameters)).items()}
    found: Keys = json.loads(json.dumps({**run, **own}))
    return found


def is_result_of(kept: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a result with these keys is one of these settings. A key that is new since then had today's default, so
    that a new feature voids nothing."""
    now, plain = keys_of(settings), keys_of(resolve({}, [f"run.method={settings.run.method}"]))
    return {key: plain.get(key) for key in now} | dict(kept) == now

"""One manifest per round: lists every file of the run with its size and checksum, and is written last.

A round is finished when its manifest exists. A run resumes from the newest manifest whose files are all intact. The
last two are kept, so that damage to the newest costs one round instead of the run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subbit.core.appended_file import Mark
from subbit.core.errors import RunFolderError
from subbit.core.files import replace_file
from subbit.wire.ledger import Totals

FORMAT = 3
KEPT = 2


@dataclass(frozen=True)
class Manifest:
    turn: int
    """0 after the head phase, 1 + round after a round of the main phase."""
    state: str
    """Checksum of the checkpoint's contents."""
    totals: Totals
    """Totals of the ledger so far."""
    events: int
    """Number of events so far."""
    files: dict[str, Mark] = field(default_factory=dict)
    """Sizes and checksums of the files that are appended to."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    body = {"format": FORMAT, **dataclasses.asdict(manifest)}
    data = json.dumps({**body, "sha256": _digest(body)}, indent=1) + "\n"
    replace_file(manifest_path(folder, manifest.turn), data.encode())


def read_manifest(folder: Path, turn: int) -> Manifest:
    path = manifest_path(folder, turn)
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        claimed = body.pop("sha256")
        if body["format"] != FORMAT:
            raise RunFolderError(f"{path} has format {body['format']!r}, this version reads {FORMAT}")
        if claimed != _digest(body) or body["turn"] != turn:
            raise RunFolderError(f"{path} is damaged: it does not add up to its checksum")
        files = {name: Mark(**mark) for name, mark in body["files"].items()}
        return Manifest(turn, body["state"], Totals(**body["totals"]), body["events"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} cannot be read: {type(error).__name__}: {error}") from None


def turns(folder: Path) -> list[int]:
    """The turns that have a manifest, newest first."""
    return sorted((int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()), reverse=True)


def forget_all_but(folder: Path, newest: int) -> None:
    """Keep `newest` and earlier ones, `KEPT` in total. Newer or unfinished ones are damaged and deleted."""
    kept = {str(turn) for turn in [turn for turn in turns(folder) if turn <= newest][:KEPT]}
    for path in (*folder.glob("*.json"), *folder.glob("*.safetensors")):
        if path.stem.isdigit() and path.stem not in kept:
            path.unlink(missing_ok=True)


def manifest_path(folder: Path, turn: int) -> Path:
    return folder / f"{turn}.json"


def state_path(folder: Path, turn: int) -> Path:
    return folder / f"{turn}.safetensors"


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

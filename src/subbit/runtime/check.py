"""Verifies the integrity of a run folder, read-only."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from subbit.config.resolve import write_toml
from subbit.core.appended_file import verify
from subbit.core.array_files import read_arrays
from subbit.core.errors import RunFolderError, SubbitError
from subbit.runtime.checkpoint import read_checkpoint
from subbit.runtime.client_memory import ClientMemories
from subbit.runtime.folder import LEDGER, RunFolder
from subbit.runtime.manifest import Manifest, read_manifest, state_path, turns
from subbit.runtime.round import ServerState
from subbit.wire.ledger import Ledger

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Finding:
    what: str
    damage: str | None
    """None if intact."""


def check_run(path: Path) -> list[Finding]:
    """One finding per file in a manifest, per client memory that will be needed, and per total that must match."""
    folder = RunFolder.open(path)
    checkpoint = path / "checkpoint"
    found = turns(checkpoint)
    if not found and (path / SUMMARY).is_file():
        return [_finding(f"{SUMMARY} of a run without rounds", lambda: _check_nothing_sent(folder))]
    if not found:
        raise RunFolderError(f"{path} has no finished round yet: there is nothing to check")
    findings: list[Finding] = []
    for turn in found:
        findings += _check_turn(folder, checkpoint, turn, newest=turn == found[0])
    return findings


def _check_turn(folder: RunFolder, checkpoint: Path, turn: int, *, newest: bool) -> list[Finding]:
    try:
        manifest = read_manifest(checkpoint, turn)
    except RunFolderError as error:
        return [Finding(f"checkpoint/{turn}.json", str(error))]
    findings = [Finding(f"checkpoint/{turn}.json", None)]
    for name, mark in manifest.files.items():
        findings.append(_finding(f"{name} up to turn {turn}", partial(verify, folder.path / name, mark)))
    state: list[ServerState] = []
    text = write_toml(folder.settings)

    def read() -> None:
        state.append(read_checkpoint(state_path(checkpoint, turn), text, manifest.state))

    findings.append(_finding(f"checkpoint/{turn}.safetensors", read))
    if newest and all(finding.damage is None for finding in findings):
        findings.append(_finding("sums of the ledger", lambda: _check_sums(folder, manifest)))
    memories = ClientMemories(folder.memory)
    if folder.settings.run.engine == "simulator":
        for client, kept in state[0].kept.items() if state else ():
            where = memories.path(client, kept)
            findings.append(_finding(str(where.relative_to(folder.path)), partial(read_arrays, where)))
    return findings


def _finding(what: str, check: Callable[[], object]) -> Finding:
    try:
        check()
    except SubbitError as error:
        return Finding(what, str(error))
    return Finding(what, None)


def _check_sums(folder: RunFolder, manifest: Manifest) -> None:
    last = manifest.turn - 1
    totals = Ledger.read_csv(folder.path / LEDGER).truncated(last).totals
    # Earlier versions counted clients that were only asked for their loss as downloads.
    if replace(totals, downloads=0) != replace(manifest.totals, downloads=0):
        raise RunFolderError(f"the lines of {LEDGER} add up to {totals}, the manifest says {manifest.totals}")
    if (folder.path / SUMMARY).is_file():
        summary = folder.read_summary()
        for name, value in asdict(manifest.totals).items():
            if name in summary and summary[name] != value:
                raise RunFolderError(f"{SUMMARY} has {name} {json.dumps(summary[name])}, the ledger {value}")


def _check_nothing_sent(folder: RunFolder) -> None:
    """`rounds=0 head=keep` evaluates the network as it is: there is no checkpoint, and no byte may be claimed."""
    claimed = folder.read_summary().get("total_bytes")
    if folder.settings.run.rounds or claimed:
        raise RunFolderError(f"{SUMMARY} claims {claimed} bytes, but there is no checkpoint of a round")

"""A checkpoint is the state after a round: one safetensors file with a checksum, replaced atomically.

Arrays are stored as arrays, numbers as JSON in the file's metadata. Reading involves no pickle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.array_files import DIGEST, Arrays, read_arrays, write_arrays
from subbit.core.errors import RunFolderError
from subbit.runtime.downlink import Broadcasts
from subbit.runtime.round import ServerState

FORMAT = "3"


def write_checkpoint(path: Path, state: ServerState, config: str) -> str:
    """`config` is the resolved configuration as text, to which the checkpoint belongs. Returns the checksum."""
    arrays: Arrays = {}
    numbers: dict[str, int | float] = {}
    for name, value in state.method.items():
        if isinstance(value, np.ndarray):
            arrays[f"method/{name}"] = value
        else:
            numbers[name] = value
    if state.head is not None:
        arrays["head"] = state.head
    broadcasts = state.broadcasts
    for name, value in (broadcasts.held or {}).items():
        arrays[f"held/{name}"] = value
    for number, frames in broadcasts.recent.items():
        for index, frame in enumerate(frames):
            arrays[f"recent/{number}/{index}"] = np.frombuffer(frame, dtype=np.uint8)
    by_client = {"kept": state.kept, "seen": broadcasts.seen, "chosen": state.chosen}
    metadata = {
        "format": FORMAT,
        "phase": state.phase,
        "next_round": str(state.next_round),
        "numbers": json.dumps(numbers),
        **{name: json.dumps(dict(sorted(values.items()))) for name, values in by_client.items()},
        "nodes": json.dumps(state.nodes),
        "config": config,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # The manifest, which comes next and flushes the folder, counts only if this file is there.
    return write_arrays(path, arrays, metadata, named=False)


def read_checkpoint(path: Path, config: str, digest: str | None = None) -> ServerState:
    """The state; `digest` is the expected checksum, if known."""
    arrays, metadata = read_arrays(path)
    if metadata.get("format") != FORMAT:
        raise RunFolderError(f"{path}: checkpoint of format {metadata.get('format')!r}, this version reads {FORMAT!r}")
    if digest is not None and metadata[DIGEST] != digest:
        raise RunFolderError(f"{path} is not the checkpoint that its manifest names")
    if metadata.get("config") != config:
        raise RunFolderError(f"{path}: the checkpoint was made with another config.toml than the one beside it")
    try:
        clients = {name: _by_client(metadata[name]) for name in ("kept", "seen", "chosen")}
        return ServerState(
            phase="head" if metadata["phase"] == "head" else "main",
            next_round=int(metadata["next_round"]),
            method={**_named(arrays, "method/"), **json.loads(metadata["numbers"])},
            head=arrays.get("head"),
            kept=clients["kept"],
            broadcasts=Broadcasts(_named(arrays, "held/") or None, _recent(arrays), clients["seen"]),
            chosen=clients["chosen"],
            nodes={str(name): int(client) for name, client in json.loads(metadata.get("nodes", "{}")).items()},
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path}: a checkpoint without {error}") from None


def _named(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _by_client(text: str) -> dict[int, int]:
    return {int(client): int(number) for client, number in json.loads(text).items()}


def _recent(arrays: dict[str, NDArray[Any]]) -> dict[int, tuple[bytes, ...]]:
    frames: dict[int, dict[int, bytes]] = {}
    for name, value in _named(arrays, "recent/").items():
        number, index = name.split("/")
        frames.setdefault(int(number), {})[int(index)] = value.tobytes()
    recent = {number: tuple(by_index[index] for index in sorted(by_index)) for number, by_index in frames.items()}
    return dict(sorted(recent.items()))

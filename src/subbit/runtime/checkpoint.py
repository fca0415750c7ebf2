"""A checkpoint is one safetensors file, replaced in one step: it holds the state after a round, or it does not exist.

Arrays go in as arrays, numbers as JSON in the file's metadata. Nothing is unpickled when it is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from subbit.errors import RunFolderError
from subbit.files import replace_file
from subbit.runtime.downlink import Broadcasts
from subbit.runtime.round import ServerState

FORMAT = "2"


def write_checkpoint(path: Path, state: ServerState, config: str) -> None:
    """`config` is the text of the resolved configuration: a checkpoint belongs to one."""
    arrays: dict[str, NDArray[Any]] = {}
    numbers: dict[str, int | float] = {}
    for name, value in state.method.items():
        if isinstance(value, np.ndarray):
            arrays[f"method/{name}"] = value
        else:
            numbers[name] = value
    if state.head is not None:
        arrays["head"] = state.head
    for client, memory in state.memories.items():
        for name, value in memory.items():
            arrays[f"memory/{client}/{name}"] = value
    broadcasts = state.broadcasts
    for name, value in (broadcasts.held or {}).items():
        arrays[f"held/{name}"] = value
    for number, frames in broadcasts.recent.items():
        for index, frame in enumerate(frames):
            arrays[f"recent/{number}/{index}"] = np.frombuffer(frame, dtype=np.uint8)
    metadata = {
        "format": FORMAT,
        "phase": state.phase,
        "next_round": str(state.next_round),
        "numbers": json.dumps(numbers),
        "seen": json.dumps({str(client): number for client, number in sorted(broadcasts.seen.items())}),
        "config": config,
    }
    data = save({name: np.ascontiguousarray(value) for name, value in arrays.items()}, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)


def read_checkpoint(path: Path, config: str) -> ServerState:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: no checkpoint can be read here ({error}); start the run again") from None
    if metadata.get("format") != FORMAT:
        raise RunFolderError(f"{path}: checkpoint of format {metadata.get('format')!r}, this version reads {FORMAT!r}")
    if metadata["config"] != config:
        raise RunFolderError(f"{path}: the checkpoint was made with another config.toml than the one beside it")
    method = {name.removeprefix("method/"): value for name, value in arrays.items() if name.startswith("method/")}
    memories: dict[int, dict[str, NDArray[Any]]] = {}
    for name, value in arrays.items():
        if name.startswith("memory/"):
            _, client, item = name.split("/", 2)
            memories.setdefault(int(client), {})[item] = value
    return ServerState(
        phase="head" if metadata["phase"] == "head" else "main",
        next_round=int(metadata["next_round"]),
        method={**method, **json.loads(metadata["numbers"])},
        head=arrays.get("head"),
        memories=memories,
        broadcasts=_broadcasts(arrays, json.loads(metadata["seen"])),
    )


def _broadcasts(arrays: dict[str, NDArray[Any]], seen: dict[str, int]) -> Broadcasts:
    held = {name.removeprefix("held/"): value for name, value in arrays.items() if name.startswith("held/")}
    frames: dict[int, dict[int, bytes]] = {}
    for name, value in arrays.items():
        if name.startswith("recent/"):
            _, number, index = name.split("/")
            frames.setdefault(int(number), {})[int(index)] = value.tobytes()
    recent = {number: tuple(by_index[index] for index in sorted(by_index)) for number, by_index in frames.items()}
    return Broadcasts(held or None, dict(sorted(recent.items())), {int(client): seen[client] for client in seen})

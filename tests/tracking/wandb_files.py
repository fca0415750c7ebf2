"""Reads what wandb writes offline: a log in the format of LevelDB with one protocol buffer per record."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

BLOCK, OPENING, HEADING = 32768, 7, struct.Struct("<IHB")
FULL, LAST = 1, 4


def records(path: Path) -> list[Any]:
    from wandb.proto import wandb_internal_pb2

    data, found, pending, position = path.read_bytes(), [], b"", OPENING
    assert data.startswith(b":W&B")
    while position + HEADING.size <= len(data):
        if BLOCK - position % BLOCK < HEADING.size:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = HEADING.unpack_from(data, position)
        position += HEADING.size
        pending += data[position : position + length]
        position += length
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pending)
            found.append(record)
            pending = b""
    assert not pending
    return found


def read_run(path: Path) -> dict[str, Any]:
    """Identifier, name, configuration, history by step, summary and files of one offline folder."""
    (log,) = path.glob("*.wandb")
    found: dict[str, Any] = {"history": [], "summary": {}, "files": set(), "config": {}}
    for record in records(log):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {"id": record.run.run_id, "name": record.run.display_name, "project": record.run.project}
            found["config"] |= _items(record.run.config.update)
        elif kind == "history":
            row = _items(record.history.item)
            found["history"].append((record.history.step.num, row))
        elif kind == "summary":
            found["summary"] |= _items(record.summary.update)
        elif kind == "files":
            found["files"] |= {entry.path for entry in record.files.files}
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
    return found


def _items(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}

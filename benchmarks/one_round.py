"""Run the first job of docs/start.md and keep what one of its rounds sent: the numbers of docs/how-it-works.md.

    python benchmarks/one_round.py        # some seconds; writes benchmarks/results/one-round.json
    python benchmarks/render_how_it_works.py

Every run draws a name of its own, which is part of the frames. So a frame is another one each time, and its length not.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from subbit.cli.entry import app
from subbit.codecs.packed import count_ones
from subbit.wire.channel import Channel, Where
from subbit.wire.frame import Direction

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "benchmarks" / "results" / "one-round.json"
ROUND = 1
"""Counted from 0: the second one, in which the broadcast has something to say."""
FLOAT = 4


def first_job() -> list[str]:
    """The first command of the page, which tests run as well."""
    found = re.search(
        r"^subbit (run name=first .*?)\n```", (ROOT / "docs" / "start.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1].replace("\\\n", " ").split()


def watched(frames: list[dict[str, Any]]) -> Any:
    """`Channel.pack` that notes every frame of the round."""
    pack = Channel.pack

    def noted(self: Channel, payload: Any, where: Where, *arguments: Any, **keywords: Any) -> bytes:
        frame = pack(self, payload, where, *arguments, **keywords)
        if where.round_number == ROUND:
            up = where.direction == Direction.UP
            frames.append(
                {
                    "direction": "up" if up else "down",
                    "client": where.client if up else None,
                    "part": self.part.name,
                    "codec": self.part.codec.name,
                    "bytes": len(frame),
                    "ones": count_ones(payload) if up else None,
                    "frame": frame,
                }
            )
        return frame

    return noted


def measure() -> dict[str, Any]:
    frames: list[dict[str, Any]] = []
    usual, here = Channel.pack, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Channel.pack = watched(frames)  # type: ignore[method-assign]
        try:
            app([*first_job(), "--quiet"], standalone_mode=False)
            run = Path(folder) / "runs" / "first"
            events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
            summary = json.loads((run / "summary.json").read_text())
        finally:
            Channel.pack = usual  # type: ignore[method-assign]
            os.chdir(here)
    rounds = [event for event in events if event["event"] == "round" and event["phase"] == "main"]
    return {"job": " ".join(first_job()), "round": ROUND, **numbers(frames, rounds, summary)}


def numbers(frames: list[dict[str, Any]], rounds: list[dict[str, Any]], summary: dict[str, Any]) -> dict[str, Any]:
    down = next(frame for frame in frames if frame["direction"] == "down")
    ups = sorted((frame for frame in frames if frame["direction"] == "up"), key=lambda frame: frame["client"])
    return {
        "method": summary["method"],
        "model": summary["model"],
        "dataset": summary["dataset"],
        "clients": summary["clients"],
        "rounds": summary["rounds"],
        "parameters": summary["parameters"],
        "score_before": summary["score_before"],
        "score": summary["score"],
        "score_by_round": summary["score_by_round"],
        "total_bytes": summary["total_bytes"],
        "float32_bytes": FLOAT * summary["parameters"],
        "down": {"part": down["part"], "codec": down["codec"], "bytes": down["bytes"]},
        "up": [
            {
                "client": frame["client"],
                "examples": int.from_bytes(frame["frame"][24:28], "little"),
                "loss": round(rounds[ROUND]["losses"][str(frame["client"])], 3),
                "flips": frame["ones"],
                "codec": frame["codec"],
                "bytes": frame["bytes"],
            }
            for frame in ups
        ],
        "frame": ups[0]["frame"][:56].hex(),
    }


if __name__ == "__main__":
    OUTPUT.write_text(json.dumps(measure(), indent=2) + "\n")

"""Write the golden frames that are missing: python tests/codecs/make_golden.py [--force]

A golden frame is a promise to every frame that was ever sent. `--force` also rewrites frames that changed: that is a
new version of the wire (`subbit.wire.frame.VERSION`), unless no release has carried the old bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cases import Subject, address_for, digest, payload_bytes, payloads, shared_for, subjects

from subbit.codecs import Kind, Shared
from subbit.wire import HEADER_BYTES, pack_frame

GOLDEN = Path(__file__).parent / "golden"
DIGESTS = GOLDEN / "sha256.json"
SIZE = 1003  # Several words, lanes and chunks of every kernel, and no multiple of 8.


def golden_frame(subject: Subject) -> bytes:
    shared = shared_for(subject.codec.kind, SIZE)
    data = subject.codec.encode(typical_payload(subject.codec.kind, shared), shared)
    return pack_frame(data, address_for(subject.codec, SIZE))


def typical_payload(kind: Kind, shared: Shared) -> Any:
    """Of vectors: the numbers in the committed frame of `dense`, which holds them as they are.

    They were once computed by numpy's power of floats, whose last bits differ between machines.
    """
    dense = GOLDEN / "dense.bin"
    if kind is Kind.VECTOR and dense.exists():
        return np.frombuffer(dense.read_bytes()[HEADER_BYTES:], dtype="<f4")
    return payloads(kind, shared)["typical"]


def main(arguments: list[str]) -> None:
    force = arguments == ["--force"]
    if arguments and not force:
        raise SystemExit(__doc__)
    digests = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    for subject in subjects():
        path = GOLDEN / f"{subject.label}.bin"
        if path.exists() and subject.label in digests and not force:
            continue
        shared = shared_for(subject.codec.kind, SIZE)
        frame = golden_frame(subject)
        decoded = subject.codec.decode(frame[HEADER_BYTES:], shared)
        path.write_bytes(frame)
        digests[subject.label] = {"frame": digest(frame), "payload": digest(payload_bytes(decoded))}
        print(f"wrote {path.name}, {len(frame)} bytes")
    DIGESTS.write_text(json.dumps(digests, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

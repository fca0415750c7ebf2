"""Decode every golden frame and print the digests of the payloads as JSON, for `test_golden` in other processes."""

from __future__ import annotations

import json

from cases import Subject, address_for, digest, payload_bytes, shared_for, subjects
from make_golden import GOLDEN, SIZE

from subbit.wire import unpack_frame


def decoded_digest(subject: Subject) -> str:
    frame = (GOLDEN / f"{subject.label}.bin").read_bytes()
    data, _ = unpack_frame(frame, address_for(subject.codec, SIZE))
    return digest(payload_bytes(subject.codec.decode(data, shared_for(subject.codec.kind, SIZE))))


if __name__ == "__main__":
    print(json.dumps({subject.label: decoded_digest(subject) for subject in subjects()}))

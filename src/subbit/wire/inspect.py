"""Describe a frame without decoding its payload: used by `subbit inspect FRAME`."""

from __future__ import annotations

from typing import Any

from subbit.core.own_components import read_own
from subbit.wire.frame import EVERYONE, HEADER_BYTES, Direction, read_header


def describe_frame(data: bytes) -> str:
    """Return a few lines of text; `FrameError` for bytes that are not one complete, undamaged frame."""
    header = read_header(data)
    codec = _find_codec(header.codec)
    who = "everyone" if header.client == EVERYONE else str(header.client)
    lines = {
        "frame": f"version {header.version}, {HEADER_BYTES} bytes of header + {header.payload_length} of payload",
        "checksum": f"{header.checksum:08x}, correct",
        "direction": "down, server to client" if header.direction == Direction.DOWN else "up, client to server",
        "round": str(header.round_number),
        "client": who,
        "part": str(header.part),
        "codec": f"{header.codec}, unknown to this version" if codec is None else f"{codec['name']} ({header.codec})",
        "payload": "unknown" if codec is None else f"{codec['payload']}, {'exact' if codec['exact'] else 'not exact'}",
        "places": str(header.size),
        "bits per place": _bits_per_place(len(data), header.payload_length, header.size),
        "examples": str(header.examples),
        "template": header.template.hex(),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _find_codec(number: int) -> dict[str, Any] | None:
    """Our own codecs from a file, others from where they are registered: all of them together need numba."""
    for row in read_own("codecs") or ():
        if row["number"] == number:
            return row
    from subbit.codecs import registered_codecs

    found = next((codec for codec in registered_codecs() if codec.number == number), None)
    return None if found is None else {"name": found.name, "payload": found.kind.value, "exact": found.exact}


def _bits_per_place(frame_bytes: int, payload_bytes: int, size: int) -> str:
    if size == 0:
        return "none, there are no places"
    return f"{8 * frame_bytes / size:.4f} with the header, {8 * payload_bytes / size:.4f} without"

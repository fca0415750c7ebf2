"""The two pictures of docs/how-it-works.md: a round and a frame, as SVG that follows the reader's light or dark."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

WIDTH = 600
STYLE = """
text { font: 16px system-ui, sans-serif; fill: #1b1f24; }
.quiet { fill: #57606a; font-size: 14px; } .strong { font-weight: 600; } .middle { text-anchor: middle; }
.byte { font: 15px ui-monospace, monospace; text-anchor: middle; }
.page { fill: #ffffff; } .box { fill: #f3f5f8; stroke: #8c959f; }
.down { stroke: #4477aa; fill: none; stroke-width: 2; } .up { stroke: #228833; fill: none; stroke-width: 2; }
.downs { fill: #2f5f8f; } .ups { fill: #1c6e2a; } .down-head { fill: #4477aa; } .up-head { fill: #228833; }
.f0 { fill: #dbe7f3; } .f1 { fill: #dcefdf; } .f2 { fill: #f8e6c8; } .f3 { fill: #f4dbe3; } .payload { fill: #e6e1f2; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ee; } .quiet { fill: #a5adb8; } .page { fill: #1e2129; } .box { fill: #2a2e38; stroke: #6b7480; }
.downs { fill: #8fbce8; } .ups { fill: #7fd08d; }
.f0 { fill: #27425f; } .f1 { fill: #24492b; } .f2 { fill: #574219; } .f3 { fill: #5a2c3d; } .payload { fill: #3d3560; }
}
"""


def picture(height: int, title: str, parts: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
            f'aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>'


def arrow(x: float, start: float, end: float, kind: str) -> list[str]:
    """Downwards; whether it is a broadcast or an upload is its colour."""
    tip = f"M{x - 5:g} {end - 8:g}L{x:g} {end:g}L{x + 5:g} {end - 8:g}Z"
    return [f'<path d="M{x:g} {start:g}V{end - 8:g}" class="{kind}"/>', f'<path d="{tip}" class="{kind}-head"/>']


def draw_round(found: Mapping[str, Any]) -> str:
    number, clients, down = found["round"], found["up"], found["down"]
    before, after = found["score_by_round"][number - 1 : number + 1]
    size = found["parameters"]
    each = (WIDTH - 40) / len(clients)
    middles = [20 + each * (at + 0.5) for at in range(len(clients))]
    sent = sum(client["bytes"] for client in clients)
    parts = [
        box(20, 16, WIDTH - 40, 58),
        text(34, 40, f"Server: {size:,} probabilities, kept as counts of {found['clients']} masks", "strong"),
        text(34, 62, f"accuracy {before:.3f}", "quiet"),
        text(34, 98, f"down: one frame for all, {down['bytes']:,} bytes, {bits(down['bytes'], size)}", "downs"),
    ]
    for middle, client in zip(middles, clients, strict=True):
        left = middle - each / 2 + 4
        parts += [
            *arrow(middle, 106, 134, "down"),
            box(left, 134, each - 8, 106),
            text(middle, 156, f"client {client['client']}", "middle strong"),
            text(middle, 178, f"{client['examples']} examples", "middle quiet"),
            text(middle, 198, f"loss {client['loss']:.2f}", "middle quiet"),
            text(middle, 222, f"{client['flips']:,} flips", "middle"),
            *arrow(middle, 240, 282, "up"),
            text(middle, 300, f"{client['bytes']:,} B", "middle ups"),
        ]
    mean = sent / len(clients)
    parts += [
        text(34, 326, f"up: one frame each, {sent:,} bytes in all, {bits(mean, size)}", "ups"),
        box(20, 340, WIDTH - 40, 80),
        text(34, 364, "Server: restores the masks and counts the ones", "strong"),
        text(34, 386, "the counts are the probabilities of the next round", ""),
        text(34, 408, f"accuracy {after:.3f}", "quiet"),
        text(34, 444, f"In float32 the weights would be {found['float32_bytes']:,} bytes, each way.", "quiet"),
    ]
    return picture(460, "One round with the bytes of every message", parts)


def bits(length: float, size: int) -> str:
    return f"{8 * length / size:.2f} bits per parameter"


FIELDS = (
    ("magic", 0, 4), ("version", 4, 1), ("direction", 5, 1), ("part", 6, 1), ("codec", 7, 1), ("template", 8, 8),
    ("round", 16, 4), ("client", 20, 4), ("examples", 24, 4), ("size", 28, 4), ("payload length", 32, 4),
    ("checksum", 36, 4),
)  # fmt: skip
HEADER, CELL, ROW = 40, 36, 46


def draw_frame(found: Mapping[str, Any]) -> str:
    frame = bytes.fromhex(found["frame"])
    client, size = found["up"][0], found["parameters"]
    values = {name: frame[at : at + length] for name, at, length in FIELDS}
    number = {name: int.from_bytes(value, "little") for name, value in values.items()}
    said = [
        f"{values['magic'].decode()}, {number['version']}, up, part {number['part']}, {client['codec']}",
        "hash of run, method and shapes",
        f"round {number['round']}, client {number['client']}",
        f"{number['examples']} examples, {number['size']:,} positions",
        f"{number['payload length']:,} bytes, CRC-32 {number['checksum']:08x}",
    ]
    parts = [text(20, 30, f"Upload of client {client['client']}: {client['bytes']:,} bytes", "strong")]
    for row, words in enumerate(said):
        y = 46 + row * ROW
        parts += cells(frame[8 * row : 8 * row + 8], 8 * row, y)
        parts += [text(320, y + 15, fields_in(row), "quiet"), text(320, y + 33, words)]
    y = 46 + 5 * ROW
    for row in range(2):
        parts += cells(frame[HEADER + 8 * row : HEADER + 8 * row + 8], None, y + row * ROW)
    rest = client["bytes"] - len(frame)
    parts += [
        text(320, y + 15, "payload", "quiet"),
        text(320, y + 33, f"{client['flips']:,} flips, entropy-coded"),
        text(320, y + ROW + 24, f"and {rest:,} more bytes"),
        text(20, y + 2 * ROW + 22, f"{bits(client['bytes'], size)}, header included", "quiet"),
    ]
    return picture(y + 2 * ROW + 40, "The bytes of one frame", parts)


def cells(data: bytes, start: int | None, y: float) -> list[str]:
    parts = []
    for at, byte in enumerate(data):
        kind = "payload" if start is None else f"f{field_of(start + at) % 4}"
        parts.append(box(20 + CELL * at, y, CELL - 3, ROW - 8, kind))
        parts.append(text(20 + CELL * at + (CELL - 3) / 2, y + 24, f"{byte:02x}", "byte"))
    return parts


def field_of(offset: int) -> int:
    return next(at for at, (_, start, length) in enumerate(FIELDS) if start <= offset < start + length)


def fields_in(row: int) -> str:
    return ", ".join(name for name, at, _ in FIELDS if 8 * row <= at < 8 * row + 8)

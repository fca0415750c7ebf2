"""Frames and the byte ledger. `subbit.wire.channel` and `subbit.wire.inspect` are not imported here, so that a frame
can be read without loading the codecs.
"""

from subbit.wire.frame import EVERYONE, HEADER_BYTES, Address, Direction, Header, pack_frame, read_header, unpack_frame
from subbit.wire.ledger import Entry, Ledger, Totals

__all__ = [
    "EVERYONE",
    "HEADER_BYTES",
    "Address",
    "Direction",
    "Entry",
    "Header",
    "Ledger",
    "Totals",
    "pack_frame",
    "read_header",
    "unpack_frame",
]

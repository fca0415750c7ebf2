"""Payloads to bytes and back: see `subbit.codecs.base` for the seam. Importing this package registers every codec."""

from subbit.codecs.base import Bits, Codec, Counts, Kind, Payload, Shared, Vector, make_codec, register_codec, registered_codecs

__all__ = ["Bits", "Codec", "Counts", "Kind", "Payload", "Shared", "Vector", "make_codec", "register_codec", "registered_codecs"]

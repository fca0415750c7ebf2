"""What the server and the mod of `compress` tell each other, in a ConfigRecord beside the arrays.

Empty lists are left out: Flower cannot count their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from subbit.core.errors import ConfigError, FrameError, ModelError

RECORD = "subbit"
"""Name of our ConfigRecord: the order on the downlink, the answer on the uplink."""
CAUSES = frozenset(
    {
        *("memory", "version", "template", "not-a-frame", "truncated", "length", "checksum", "direction"),
        *("part", "codec", "round", "client", "size", "examples", "payload", "value"),
    }
)
"""Why a node cannot follow a broadcast: those of `FrameError`, and a memory that is gone."""
LONGEST_REASON = 300
Fields = dict[str, int | float | str | bytes | bool | list[int] | list[float] | list[str] | list[bytes] | list[bool]]
"""Of a ConfigRecord."""


@dataclass(frozen=True)
class BroadcastOrder:
    """Builds on what the node holds after version `base`, 0 for nothing; afterwards it holds `version`.

    Either a snapshot of `version`, or the frames from `base` + 1 to `version`.
    """

    lineage: str
    version: int
    base: int
    frames: tuple[bytes, ...] = ()
    snapshot: bytes = b""
    form: bytes = b""
    """Of the record, if the node does not have it."""

    def fields(self) -> Fields:
        optional: Fields = {"frames": list(self.frames), "snapshot": self.snapshot, "form": self.form}
        given = {name: value for name, value in optional.items() if value}
        return {"lineage": self.lineage, "version": self.version, "base": self.base, **given}

    @classmethod
    def read(cls, record: ConfigRecord) -> BroadcastOrder:
        lineage, version, base = (record.get(name) for name in ("lineage", "version", "base"))
        frames, snapshot, form = record.get("frames", []), record.get("snapshot", b""), record.get("form", b"")
        if not (
            isinstance(lineage, str)
            and type(version) is int
            and type(base) is int
            and isinstance(frames, list)
            and isinstance(snapshot, bytes)
            and isinstance(form, bytes)
        ):
            raise FrameError("not-a-frame", "the order of this message was not written by a compressed strategy")
        whole = tuple(frame for frame in frames if isinstance(frame, bytes))
        if not 0 <= base <= version or len(whole) != len(frames) or len(whole) != (0 if snapshot else version - base):
            raise FrameError("version", f"{len(frames)} frames lead from version {base} to {version}")
        return cls(lineage, version, base, whole, snapshot, form)


@dataclass(frozen=True)
class CompressionOrder:
    """The server's request to the mod."""

    round_number: int
    compression: str
    plain: tuple[str, ...] = ()
    """Names of the arrays that are sent back uncompressed; with a compressed downlink they are in its form."""
    replies: bool = True
    """Compress the reply; false in evaluation."""

    def record(self, broadcast: BroadcastOrder | None = None) -> ConfigRecord:
        fields: Fields = {"round": self.round_number, "compression": self.compression, "replies": self.replies}
        if broadcast is not None:
            return ConfigRecord({**fields, **broadcast.fields()})
        return ConfigRecord({**fields, "plain": list(self.plain)} if self.plain else fields)

    @classmethod
    def read(cls, record: ConfigRecord) -> CompressionOrder:
        round_number, compression = record.get("round"), record.get("compression")
        plain, replies = record.get("plain", []), record.get("replies")
        names = tuple(name for name in plain if isinstance(name, str)) if isinstance(plain, list) else ()
        if not isinstance(round_number, int) or not isinstance(compression, str) or list(names) != plain:
            raise ConfigError("the record 'subbit' of this message was not written by a compressed strategy")
        return cls(round_number, compression, names, bool(replies))


@dataclass(frozen=True)
class Held:
    """A node's word about the version it holds, 0 for none, and the checksum of its vector."""

    version: int
    checksum: int

    def fields(self) -> Fields:
        return {"held": self.version, "held-checksum": self.checksum}

    @classmethod
    def read(cls, record: ConfigRecord) -> Held | None:
        version, found = record.get("held"), record.get("held-checksum")
        return cls(version, found) if type(version) is int and type(found) is int else None


def refusal(error: FrameError, version: int) -> RecordDict:
    """The answer of a node that cannot follow a broadcast and holds this version."""
    fields = {"refused": error.cause, "reason": str(error)[:LONGEST_REASON] or error.cause}
    return RecordDict({RECORD: ConfigRecord({**fields, **Held(version, 0).fields()})})


def unfit(error: ModelError | FrameError, said: Fields) -> RecordDict:
    """The answer of a node that followed the broadcast, and whose app made arrays that cannot be sent."""
    cause = error.cause if isinstance(error, FrameError) else "template"
    return RecordDict({RECORD: ConfigRecord({**said, "unfit": cause, "reason": str(error)[:LONGEST_REASON]})})


def read_refusal(record: ConfigRecord, name: str = "refused") -> FrameError | None:
    """The error that a node reports under this name. Its words are untrusted."""
    cause, reason = record.get(name), record.get("reason")
    if not isinstance(cause, str):
        return None
    return FrameError(cause if cause in CAUSES else "payload", f"the node says: {str(reason)[:LONGEST_REASON]!r}")


def only_arrays(content: RecordDict) -> tuple[str, ArrayRecord]:
    """Name and record of the only ArrayRecord in a message."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise ConfigError(f"a compressed message holds one ArrayRecord, this one {len(records)}")
    return records[0]


def count_bytes(content: RecordDict) -> int:
    """Bytes of the arrays of a message and of what we put beside them."""
    arrays = sum(record.count_bytes() for record in content.array_records.values())
    return arrays + _bytes_of(content.config_records.get(RECORD, ConfigRecord()))


def _bytes_of(record: ConfigRecord) -> int:
    """As `ConfigRecord.count_bytes`, which fails for empty values."""
    numbers = 8
    total = 0
    for name, value in record.items():
        values = value if isinstance(value, list) else [value]
        total += len(name) + sum(len(one) if isinstance(one, bytes | str) else numbers for one in values)
    return total

"""A node's announcement when it first connects, and its verification by the server.

    "node"    partition-id, num-partitions     from the node's `--node-config`, -1 if missing or not a number
              version                          version of subbit on the node
              configuration                    digest of the job's settings as resolved by the node
              problem                          the error, if it cannot resolve them

A node with another version would train in every round and have its replies rejected because of their template. This
check reports it once, before any training.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

import subbit
from subbit.core.errors import SubbitError

SERVER_KEYS = ("engine", "name", "folder")
"""Keys in which a node's settings may differ: the engine, and where the server stores its results."""


class RefusedError(SubbitError):
    """A node that cannot participate, with a short identifier of the reason."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Expected:
    """What a node must announce to participate in a job."""

    clients: int
    configuration: str
    version: str = subbit.__version__


def configuration_digest(text: str) -> str:
    """Digest of resolved settings in the format of `write_toml`, the same for every engine."""
    values = {key: value for key, value in tomllib.loads(text).items() if key not in SERVER_KEYS}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def announcement(partition: object, partitions: object, configuration: Callable[[], str]) -> RecordDict:
    """The node's answer. A node started without a partition announces -1."""
    digest = problem = ""
    try:
        digest = configuration_digest(configuration())
    except SubbitError as error:
        problem = str(error)
    values = {"partition-id": partition, "num-partitions": partitions}
    numbers = {name: value if type(value) is int and abs(value) < 2**31 else -1 for name, value in values.items()}
    words = {"version": subbit.__version__, "configuration": digest, "problem": problem}
    return RecordDict({"node": ConfigRecord({**numbers, **words})})


def read_announcement(answer: Message, expected: Expected) -> int:
    """The node's partition; raises `RefusedError` for anything that does not match, whatever was sent."""
    from subbit.flower.records import printable, shown

    fields = dict(answer.content.config_records.get("node", ConfigRecord()))
    version = fields.get("version")
    if version != expected.version:
        runs = f"runs subbit {printable(version[:40])}" if type(version) is str else "does not say which subbit it runs"
        raise RefusedError("version", f"{runs}, this server {expected.version}: install the same version on both")
    problem, digest = fields.get("problem"), fields.get("configuration")
    if problem:
        raise RefusedError("configuration", f"cannot use the configuration of this job: {shown(problem, 300)}")
    if digest != expected.configuration:
        raise RefusedError(
            "configuration",
            f"makes other settings of this job's configuration than this server, though both run subbit "
            f"{expected.version}: is one of the two changed, or lacks a method of yours?",
        )
    partition, partitions = fields.get("partition-id"), fields.get("num-partitions")
    whole = type(partition) is int and type(partitions) is int and partitions == expected.clients
    if type(partition) is not int or not whole or not 0 <= partition < expected.clients:
        raise RefusedError(
            "partition",
            f"announces partition-id {shown(partition)} of {shown(partitions)}, but the job has "
            f"clients={expected.clients}: start it with --node-config "
            f'"partition-id=K num-partitions={expected.clients}"',
        )
    return partition

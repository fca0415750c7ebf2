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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

import subbit
from subbit.core.errors import SubbitError

LONGEST_NAME = 64
OWN = "own"
"""`dataset=own`; what has the configuration's keys imports more than an announcement needs."""

SERVER_KEYS = ("engine", "name", "folder", "track")
"""Keys in which a node's settings may differ: the engine, and where the server stores and shows its results."""


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
    own_data: bool = False
    """Whether nodes bring their own data; they then have a name and no number."""
    most_examples: int = 0


@dataclass(frozen=True)
class Announced:
    """Who a node is: one of the clients by its number, or a node with its own data."""

    client: int = -1
    name: str = ""
    examples: int = 0
    """Number of its training examples, with own data."""


def configuration_digest(text: str) -> str:
    """Digest of resolved settings in the format of `write_toml`, the same for every engine."""
    values = {key: value for key, value in tomllib.loads(text).items() if key not in SERVER_KEYS}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def announcement(
    node: Mapping[str, Any], configuration: Callable[[], str], count_examples: Callable[[str], int]
) -> RecordDict:
    """The node's answer. A node started without a partition announces -1, one without data of its own 0 examples.

    `count_examples` takes the resolved configuration; it raises `RefusedError` if the node's data do not fit.
    """
    digest = problem = cause = ""
    examples = 0
    try:
        text = configuration()
        digest = configuration_digest(text)
        if tomllib.loads(text).get("dataset") == OWN:
            examples = count_examples(text)
    except RefusedError as error:
        problem, cause = str(error), error.cause
    except SubbitError as error:
        problem = str(error)
    values = {"partition-id": node.get("partition-id"), "num-partitions": node.get("num-partitions")}
    numbers = {name: value if type(value) is int and abs(value) < 2**31 else -1 for name, value in values.items()}
    words = {"version": subbit.__version__, "configuration": digest, "problem": problem, "cause": cause}
    name = str(node.get("name", ""))[:LONGEST_NAME]
    return RecordDict({"node": ConfigRecord({**numbers, **words, "name": name, "examples": examples})})


def read_announcement(answer: Message, expected: Expected) -> Announced:
    """Who the node is; raises `RefusedError` for anything that does not match, whatever was sent."""
    from subbit.flower.records import printable, shown

    fields = dict(answer.content.config_records.get("node", ConfigRecord()))
    version = fields.get("version")
    if version != expected.version:
        runs = f"runs subbit {printable(version[:40])}" if type(version) is str else "does not say which subbit it runs"
        raise RefusedError("version", f"{runs}, this server {expected.version}: install the same version on both")
    problem, digest = fields.get("problem"), fields.get("configuration")
    if problem and fields.get("cause") == "data":
        raise RefusedError("data", f"has data that do not fit: {shown(problem, 300)}")
    if problem:
        raise RefusedError("configuration", f"cannot use the configuration of this job: {shown(problem, 300)}")
    if digest != expected.configuration:
        raise RefusedError(
            "configuration",
            f"makes other settings of this job's configuration than this server, though both run subbit "
            f"{expected.version}: is one of the two changed, or lacks a method of yours?",
        )
    if expected.own_data:
        return _with_own_data(fields, expected)
    partition, partitions = fields.get("partition-id"), fields.get("num-partitions")
    whole = type(partition) is int and type(partitions) is int and partitions == expected.clients
    if type(partition) is not int or not whole or not 0 <= partition < expected.clients:
        raise RefusedError(
            "partition",
            f"announces partition-id {shown(partition)} of {shown(partitions)}, but the job has "
            f"clients={expected.clients}: start it with --node-config "
            f'"partition-id=K num-partitions={expected.clients}"',
        )
    return Announced(partition)


def _with_own_data(fields: Mapping[str, Any], expected: Expected) -> Announced:
    from subbit.flower.records import printable, shown

    examples, name = fields.get("examples"), fields.get("name")
    if type(examples) is not int or not 1 <= examples <= expected.most_examples:
        raise RefusedError(
            "examples",
            f"announces {shown(examples)} training examples, and a node may count for 1 to {expected.most_examples} "
            "(most_examples)",
        )
    if type(name) is not str or len(name) > LONGEST_NAME:
        raise RefusedError("record", "announces a name that is none")
    return Announced(name=printable(name), examples=examples)

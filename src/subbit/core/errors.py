"""All errors that subbit raises on purpose. The message says what was found and what to do about it.

The command line prints the message of a `SubbitError` in one line and exits with its `exit_status`.
"""

from __future__ import annotations


class SubbitError(Exception):
    """Base class of all errors raised on purpose."""

    exit_status = 1


class ConfigError(SubbitError):
    """A key, a value or a combination of them that is invalid. Never corrected silently."""

    exit_status = 2


class PluginError(ConfigError):
    """A plugin that cannot be loaded, or that a run needs but did not get."""


class DataError(SubbitError):
    """A data set that cannot be read or has the wrong format: what was found and what is needed."""

    exit_status = 3


class ModelError(SubbitError):
    """A module, a selection of its parameters or a checkpoint that does not fit."""

    exit_status = 4


class QuorumError(SubbitError):
    """Fewer clients answered than the run needs."""

    exit_status = 5


class RunFolderError(SubbitError):
    """A run folder that is missing, already exists or is damaged."""

    exit_status = 6


class FrameError(SubbitError):
    """Bytes from the wire that are not the frame the receiver expects.

    `cause` is a short, stable word under which a server counts rejected frames: not-a-frame, truncated, length,
    version, checksum, direction, part, codec, template, round, client, size, examples, payload, value.
    """

    exit_status = 7

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class PayloadError(FrameError):
    """A payload that its codec rejects: too long, too short, inconsistent or out of range."""

    def __init__(self, message: str, cause: str = "payload") -> None:
        super().__init__(cause, message)


class WorkerError(SubbitError):
    """A worker process that keeps dying while the run cannot continue without its result."""

    exit_status = 8


class Interrupted(SubbitError):
    """Ctrl-C, with a message about what to do next. Not an error of the run."""

    exit_status = 130


class RunWarning(UserWarning):
    """A finished run in which something looks wrong: what, the likely cause and the key to change."""

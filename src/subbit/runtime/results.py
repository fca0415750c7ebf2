"""A finished run in numbers: what `summary.json` holds, key by key.

docs/results.md and its JSON schema are made of these classes (scripts/results_schema.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from subbit.core.json_records import PREFIX
from subbit.privacy.report import PrivacyReport


@dataclass(frozen=True)
class Codecs:
    """Names of the codecs, one for each part of a message, in the order of the parts."""

    up: tuple[str, ...]
    """From the clients."""
    down: tuple[str, ...]
    """From the server."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The run in numbers. The same job again, with the same versions, differs in its seconds alone."""

    schema: Literal[1] = 1
    """Goes up when a key is taken away or changes its meaning."""
    name: str
    """Of the run, and of its folder."""
    method: str
    """As `subbit list methods` names it."""
    preset: str
    """`default`, or `paper` for the values of the method's authors."""
    model: str
    """As the configuration names it, or the class of a module that was given."""
    pretrained: bool
    """Whether the network starts from trained weights."""
    dataset: str
    """As the configuration names it."""
    split: str
    """Fingerprint of who holds which examples."""
    clients: int
    """In all."""
    participants: int
    """Asked in each round."""
    rounds: int
    """Of the main phase."""
    seed: int
    """Of everything random, but for noise that is asked of the system."""
    parameters: int
    """Numbers that are trained: what bits per parameter are counted by."""
    accuracy: float
    """After the last round, of the network that `network` names."""
    accuracy_before: float
    """Before the first round, with the head fitted."""
    network: str
    """Which of the method's networks `accuracy` and `accuracy_by_round` are about."""
    uplink_bpp: float
    """Bits per parameter that a client sends in a round, headers included, one-off costs not."""
    downlink_bpp: float
    """Bits per parameter that a client receives in a round, likewise."""
    uplink_bytes: int
    """From all clients in all rounds."""
    downlink_bytes: int
    """To all clients in all rounds."""
    one_off_bytes: int
    """The head phase, the head sent to each client once, and what else is sent only once, either way."""
    total_bytes: int
    """The three together."""
    failed_clients: int
    """Client turns that failed, in both phases."""
    failures: dict[str, int]
    """The same by cause."""
    codecs: Codecs
    """Which codecs carried the messages."""
    accuracy_by_round: tuple[float | None, ...]
    """After each round; null where it was not evaluated."""
    bytes_by_round: tuple[int, ...]
    """Total bytes from the start to the end of each round."""
    seconds: float
    """Of all rounds, also of those before the run was resumed."""
    seconds_this_process: float
    """Of the process that finished the run, with what comes before and after the rounds."""
    model_sha256: str
    """Of the trained network's state dict: equal for the same job, however many workers, resumed or not."""
    versions: dict[str, str]
    """Of Python and of the packages that decide the numbers."""
    accuracies: dict[str, float] = field(default_factory=dict, metadata={PREFIX: "accuracy_"})
    """After the last round, of each network of a method that has several, e.g. `accuracy_expected`."""
    accuracy_by_client: dict[int, float] | None = None
    """Of each client on its own test set, where evaluation is personal: `accuracy` is the mean of these."""
    not_evaluated: dict[str, int] | None = None
    """How often a client could not say how good its own network is, by cause; only where there were any."""
    link_mbit: float | None = None
    """Rate of the link for which `link_hours` is given, where the configuration names one."""
    link_hours: float | None = None
    """How long the messages of the run take on that link."""
    privacy: PrivacyReport | None = None
    """Only of a run under differential privacy."""
    flips_per_upload: float | None = None
    """Places in which a client's mask differs from the server's; of `fedmask` their share."""
    flips_kept_per_upload: float | None = None
    """How many of them were sent."""
    false_flips_per_upload: float | None = None
    """Places that the server flips without a client having asked for it; only of codecs that are not exact."""

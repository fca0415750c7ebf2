"""The summary of a finished run: the contents of `summary.json`, key by key.

docs/results.md and its JSON schema are generated from these classes (scripts/results_schema.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from subbit.core.json_records import PREFIX
from subbit.privacy.report import PrivacyReport


@dataclass(frozen=True)
class Codecs:
    """Names of the codecs, one per part of a message, in the order of the parts."""

    up: tuple[str, ...]
    """Uplink codecs."""
    down: tuple[str, ...]
    """Downlink codecs."""


@dataclass(frozen=True)
class Advice:
    """Something that looks wrong about a run."""

    what: str
    """What was found, and the likely cause."""
    key: str
    """The key to change first."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Summary of a run. Repeating the job with the same versions changes only the times."""

    schema: Literal[1] = 1
    """Version of this format; incremented when a key is removed or changes its meaning."""
    name: str
    """Name of the run and of its folder."""
    method: str
    """Name of the method, as in `subbit list methods`."""
    preset: str
    """`default`, or `paper` for the values of the method's authors."""
    model: str
    """Name of the model in the configuration, or the class of a module passed in."""
    pretrained: bool
    """Whether the network starts from pre-trained weights."""
    dataset: str
    """Name of the dataset in the configuration."""
    split: str
    """Fingerprint of the assignment of examples to clients."""
    clients: int
    """Total number of clients."""
    participants: int
    """Number of clients asked in each round."""
    rounds: int
    """Number of rounds of the main phase."""
    seed: int
    """Seed of all randomness, except noise drawn from the operating system."""
    parameters: int
    """Number of trained parameters, the denominator of bits per parameter."""
    objective: str
    """What the loss and the scores are, as in `subbit list objectives`."""
    score_name: str
    """Name of the score, e.g. `accuracy`."""
    higher_is_better: bool
    """Whether a higher score is better."""
    score: float
    """Score of `network` after the last round."""
    score_before: float
    """Score before the first round, with the head fitted."""
    scores: dict[str, float]
    """All scores of the objective after the last round, by name."""
    network: str
    """Which of the method's networks `score` and `score_by_round` refer to."""
    uplink_bpp: float
    """Bits per parameter that a client sends per round, including headers, excluding one-off costs."""
    downlink_bpp: float
    """Bits per parameter that a client receives per round, counted in the same way."""
    uplink_bytes: int
    """Bytes from all clients in all rounds."""
    downlink_bytes: int
    """Bytes to all clients in all rounds."""
    one_off_bytes: int
    """Bytes of the head phase, the head sent once to each client, and anything else sent only once, in both
    directions."""
    total_bytes: int
    """Sum of uplink, downlink and one-off bytes."""
    failed_clients: int
    """Number of failed client turns, in both phases."""
    failures: dict[str, int]
    """Number of failed client turns by cause."""
    codecs: Codecs
    """Codecs of the messages."""
    score_by_round: tuple[float | None, ...]
    """Score after each round; null if not evaluated."""
    bytes_by_round: tuple[int, ...]
    """Cumulative bytes after each round."""
    seconds: float
    """Duration of all rounds, including those before the run was resumed."""
    seconds_this_process: float
    """Running time of the process that finished the run, including setup and final evaluation."""
    model_sha256: str
    """Hash of the trained network's state dict; the same for the same job, regardless of workers and resuming."""
    versions: dict[str, str]
    """Versions of Python and of the packages that affect the results."""
    warnings: tuple[Advice, ...] = ()
    """What looks wrong about the run; usually nothing."""
    network_scores: dict[str, float] = field(default_factory=dict, metadata={PREFIX: "score_"})
    """Score of each network after the last round, for methods with several networks, e.g. `score_expected`."""
    score_by_client: dict[int, float] | None = None
    """Score of each client on its own test set, with personal evaluation: `score` is their mean."""
    accuracy: float | None = None
    """With objective=classification, where the score is the accuracy: the same as `score`."""
    accuracy_before: float | None = None
    """Likewise: the same as `score_before`."""
    accuracy_by_round: tuple[float | None, ...] | None = None
    """Likewise: the same as `score_by_round`."""
    accuracies: dict[str, float] = field(default_factory=dict, metadata={PREFIX: "accuracy_"})
    """Likewise: the same as `score_NETWORK`, e.g. `accuracy_expected`."""
    accuracy_by_client: dict[int, float] | None = None
    """Likewise: the same as `score_by_client`."""
    not_evaluated: dict[str, int] | None = None
    """How often a client's own network could not be evaluated, by cause; only if it happened."""
    link_mbit: float | None = None
    """Rate of the link assumed for `link_hours`, if one is configured."""
    link_hours: float | None = None
    """Transmission time of the run on that link."""
    privacy: PrivacyReport | None = None
    """Only for runs with differential privacy."""
    flips_per_upload: float | None = None
    """Number of places where a client's mask differs from the server's; for `fedmask`, their share."""
    flips_kept_per_upload: float | None = None
    """Number of these flips that were sent."""
    false_flips_per_upload: float | None = None
    """Number of places flipped on the server but not by the client; only for inexact codecs."""

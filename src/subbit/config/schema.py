"""The keys of a run that do not belong to a method. A method's own keys are the fields of its `Parameters`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from subbit.core.values import named, require

AUTO_NAME = "auto"
GIVEN = "given"
"""The model and the data set of a run of `subbit.fine_tune`: no configuration names them."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RunConfig:
    """One federated job. Every field is a key of the TOML file and of `key=value` on the command line."""

    name: str = AUTO_NAME
    """Folder under `folder` for the results. `auto`: the method and the next free number, e.g. `deltamask-1`."""
    folder: str = "runs"
    method: str = "deltamask"
    preset: Literal["default", "paper"] = "default"
    """`paper`: the method's hyper-parameters and wire format as its paper has them."""
    seed: int = 0
    rounds: int = 10

    dataset: str = "digits"
    limit: int | None = None
    """Use only so many training examples (a fixed choice, every class in its share)."""
    test_limit: int | None = None
    clients: int = 10
    partition: str = named("partition", "dirichlet")
    alpha: float = 10.0
    """Concentration of the Dirichlet split: 10 is nearly IID, 0.1 is a few classes per client."""
    classes_per_client: int = 2
    class_balance: float = 1.0
    """Partition `classes`: one class of a client is whole, of each other one it has this share of the examples."""

    model: str = "subbit/vit-micro"
    pretrained: bool = True
    """False: the same architecture with random weights drawn from the seed."""
    revision: str = "main"
    """Of a model from the hub: a branch, a tag or a commit. Only a commit names the same weights for ever."""
    pooling: Literal["auto", "cls", "mean", "pooled"] = "auto"
    select: str = "auto"
    """Which parameters are trained, e.g. "last 5 blocks: weights", "all", "head". `auto` is the method's own choice."""
    batchnorm: Literal["frozen", "batch", "average"] = "frozen"
    head: Literal["probe", "lda", "kaiming", "keep"] = "probe"
    """The classifier: one federated round of linear probing, closed-form LDA, random, or as the module has it."""
    head_epochs: int = 1
    head_learning_rate: float = 1e-3
    head_batch_size: int = 64

    participation: float = 1.0
    """Share of the clients that takes part in a round."""
    selection: Literal["uniform", "high-loss"] = "uniform"
    """Who takes part: drawn clients, or those of highest loss among `drawn` clients that are asked for it."""
    drawn: int | None = None
    """For `high-loss`: how many clients are asked in a round; none: twice as many as take part."""
    quorum: float = 0.5
    """A round with a smaller share of answers from its participants ends the run."""
    evaluate: Literal["auto", "global", "personal"] = "auto"
    """One network on the whole test set, or the mean over the clients of each one's accuracy on its own test set (all
    test examples of its classes). `auto`: personal for methods that give every client a network of its own."""
    evaluate_every: int = 1
    evaluation_samples: int = 1
    """Masks over which the accuracy of the sampled network is averaged."""
    workers: int = 1
    """Processes that train clients side by side. Changes no bit of the result."""
    threads: int = 1
    """torch threads per worker. Part of the configuration because it may change the last bits of a matrix product."""

    plugins: str | None = None
    """Files given by `--plugin`, with their checksums. Written by subbit: a run is refused without these very files."""
    engine: Literal["simulator", "flower", "deployment"] = "simulator"
    """How orders reach clients: in this library's own processes, in Flower's simulation on this machine, or, set by
    the Flower app itself, on Flower's nodes. Changes no bit of the result."""
    deadline: float = 600.0
    """Seconds that Flower's nodes have for a round (and, at the start, to connect). Who is late is left out of it."""
    link_mbit: float | None = None
    """Bandwidth of a client in Mbit/s, each way: the summary then says how many hours of it the messages take."""
    link_latency_ms: float = 0.0
    """Milliseconds until the first bit of a message arrives, counted with `link_mbit`."""

    def __post_init__(self) -> None:
        require(
            NAME_PATTERN.fullmatch(self.name) is not None, f"name={self.name!r}: letters, digits, '.', '_' and '-' only"
        )
        for key in ("rounds", "clients", "classes_per_client", "head_epochs", "head_batch_size", "evaluate_every"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")
        for key in ("workers", "threads", "evaluation_samples"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")
        for key in ("limit", "test_limit", "drawn"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"{key}={value}: needs at least 1, or none")
        require(0 <= self.seed < 1 << 63, f"seed={self.seed}: needs 0 to 2^63 - 1")
        require(self.alpha > 0, f"alpha={self.alpha}: needs a number above 0")
        require(0 < self.class_balance <= 1, f"class_balance={self.class_balance}: needs a share above 0, at most 1")
        require(0 < self.participation <= 1, f"participation={self.participation}: needs a share above 0, at most 1")
        require(0 < self.deadline <= 1e6, f"deadline={self.deadline}: needs seconds above 0, at most a million")
        require(
            self.link_mbit is None or 0 < self.link_mbit < math.inf,
            f"link_mbit={self.link_mbit}: needs Mbit/s above 0, or none",
        )
        require(
            0 <= self.link_latency_ms < math.inf,
            f"link_latency_ms={self.link_latency_ms}: needs 0 or more milliseconds",
        )
        require(0 < self.quorum <= 1, f"quorum={self.quorum}: needs a share above 0, at most 1")
        require(self.head_learning_rate > 0, f"head_learning_rate={self.head_learning_rate}: needs a number above 0")

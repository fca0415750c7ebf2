"""The keys of a run that do not belong to a method. A method's own keys are the fields of its `Parameters`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from subbit.core.devices import DEVICE, NEEDED
from subbit.core.values import named, require, several

AUTO_NAME = "auto"
GIVEN = "given"
"""Model and data set of a `subbit.fine_tune` run, which no configuration names."""
OWN = "own"
"""Data set of a run on Flower's nodes, each of which has its own data and nobody else's."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class RunConfig:
    """One federated job. Every field is a key of the TOML file and of `key=value` on the command line."""

    name: str = AUTO_NAME
    """Subfolder of `folder` for the results. `auto`: the method and the next free number, e.g. `deltamask-1`."""
    folder: str = "runs"
    method: str = "deltamask"
    preset: Literal["default", "paper"] = "default"
    """`paper`: the hyper-parameters and wire format of the method's paper."""
    seed: int = 0
    rounds: int = 10
    """0: only fit the head and score it."""

    dataset: str = "digits"
    """A name, a file or a folder. `own`: on Flower, every node brings its own data (docs/own-nodes.md)."""
    test_dataset: str | None = None
    """With `dataset=own`: a data set of the server's, whose test examples are used; none: nodes test on their own."""
    test_share: float = 0.2
    """With `dataset=own`: the share of its examples that a node without test data holds out."""
    classes: int | None = None
    """Number of classes, or of outputs; none: as many as the labels have."""
    class_names: str | None = None
    """With `dataset=own`: the names of the classes in their order, separated by commas, where nodes have names."""
    input: str | None = None
    """With `dataset=own`: type and shape of one input, e.g. "uint8 3x32x32". A node with another is refused."""
    start_with: int | None = None
    """With `dataset=own`: how many nodes must be connected to begin; none: `clients`, or a quorum after the
    deadline."""
    most_examples: int = 100_000
    """With `dataset=own`: a node that announces more training examples is refused, since they are its weight."""
    limit: int | None = None
    """Use only this many training examples (a fixed, stratified choice)."""
    test_limit: int | None = None
    clients: int = 10
    partition: str = named("partition", "dirichlet")
    alpha: float = 10.0
    """Concentration of the Dirichlet split: 10 is nearly IID, 0.1 is a few classes per client."""
    classes_per_client: int = 2
    class_balance: float = 1.0
    """Partition `classes`: a client has all examples of one of its classes, and this share of each other one."""

    validation: float | None = None
    """Score on this share of every client's training examples, held out, and leave the test set alone: for choosing
    settings. None: train on all, score on the test set."""
    pooled: bool = False
    """Give all clients' examples to one client: training in one place, what a federation can reach at best."""

    objective: str = named("objective", "classification")
    """What the loss and the score are."""
    augment: str | None = None
    """Random changes of training images, e.g. "crop, flip"; none: as they are."""

    model: str = "subbit/vit-micro"
    """A name, a folder, a hub name, or `my_package.my_module:build`, a function that returns a torch module."""
    pretrained: bool = True
    """False: the same architecture with random weights drawn from the seed. Of a model of your own it only says what
    your function returns: methods then select and start otherwise. Weights of it that nobody ever trained, as their
    values show, are random ones in any case."""
    revision: str = "main"
    """For a model from the hub: a branch, a tag or a commit. Only a commit always refers to the same weights."""
    pooling: Literal["auto", "cls", "mean", "pooled", "last"] = "auto"
    select: str = "auto"
    """Which parameters are trained, e.g. "last 5 blocks: weights", "all", "head". `auto`: the method's default."""
    batchnorm: Literal["frozen", "batch", "average"] = "frozen"
    head: Literal["probe", "lda", "kaiming", "keep"] = "lda"
    """The classifier: one federated round of linear probing, closed-form LDA, random, or the module's own (the default
    for a model of your own and for other objectives)."""
    head_shrinkage: float | Literal["auto"] = "auto"
    """For `head=lda`: how far the covariance of features is shrunk to a multiple of the identity. `auto`: by how well
    new examples are separated, predicted from the same statistics."""
    head_temperature: float | Literal["auto"] = "auto"
    """For `head=lda`: factor on the logits. `auto`: so that they are as sure of new examples as they may be."""
    head_codec: Literal["auto", "factors", "lean", "float32", "float16", "int8"] = "auto"
    """For `head=lda`: how clients send statistics of features. `factors`, which `auto` is: in few bytes. `lean`: in
    about a third of these, for about a point of the accuracy that training starts from. The others send all second
    moments, with 4, 2 or 1 byte each."""
    head_epochs: int = 1
    head_learning_rate: float = 1e-3
    head_batch_size: int = 64

    participation: float = 1.0
    """Share of the clients that participate in a round."""
    selection: Literal["uniform", "high-loss"] = "uniform"
    """Client selection: at random, or those with the highest loss among `drawn` clients that report it."""
    drawn: int | None = None
    """For `high-loss`: the number of clients asked per round; none: twice the number of participants."""
    quorum: float = 0.5
    """Minimum share of participants that must answer; otherwise the run ends."""
    evaluate: Literal["auto", "global", "personal", "federated"] = "auto"
    """One network on the whole test set; the mean of the clients' scores, each on its own test set (all test examples
    of its classes); or one network on all the clients' own test sets, of which they send sums. `auto`: personal for
    methods that give every client its own network, federated where the server has no test data."""
    evaluate_every: int = 1
    evaluation_samples: int = 1
    """Number of masks over which the accuracy of the sampled network is averaged."""
    evaluation_batch: int | Literal["auto"] = "auto"
    """Examples that go through the network at a time when it is evaluated; fewer need less memory. `auto`: 32 on a CPU,
    whose caches hold little more, 256 elsewhere."""
    workers: int = 1
    """Number of processes that train clients in parallel. Does not change the result."""
    threads: int = 1
    """torch threads per worker. Part of the configuration because it may change the last bits of a matrix product."""
    device: str = "auto"
    """Where networks train: cpu, cuda, cuda:1, xpu, mps. `auto`: a GPU if there is one. Workers are spread over the
    GPUs."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """In which the network computes. What is trained and sent stays float32."""
    products: Literal["auto", "torch", "onednn"] = "auto"
    """How linear layers are computed on a CPU. `auto`: by oneDNN where torch's own matrix products are slower, on
    processors that are not Intel's. Changes the last bits of a result."""
    checkpointing: bool = False
    """Compute the activations of blocks again in the backward pass instead of keeping them: less memory, about a third
    more time. Does not change the result."""
    frozen_weights: Literal["float32", "bfloat16", "int8"] = "float32"
    """How weights that are not trained are kept. `bfloat16`: half the memory, and layers of such weights compute in it.
    `int8`: a quarter for linear layers; needs torchao."""
    cache: Literal["exact", "bfloat16", "off"] = "exact"
    """Keep what frozen layers compute for an example, so that it is computed once. `exact` does not change the result;
    `bfloat16` takes half the memory and rounds."""
    cache_gb: float = 2.0
    """Memory for the cache in gigabytes. What needs more is kept in a temporary file."""

    track: str | None = several("tracker")
    """Trackers that are told of every round, e.g. `tensorboard,mlflow` (docs/tracking.md). Does not change the result,
    and a run may be resumed with others."""
    plugins: str | None = None
    """Files given by `--plugin`, with their checksums. Written by subbit: the run only starts with exactly these
    files."""
    engine: Literal["simulator", "flower", "deployment"] = "simulator"
    """How orders reach clients: in this library's own processes, in Flower's simulation on this machine or, set by the
    Flower app itself, on Flower's nodes. Does not change the result."""
    deadline: float = 600.0
    """Seconds that Flower's nodes have for a round (and, at the start, to connect). Late clients are left out."""
    link_mbit: float | None = None
    """Bandwidth of a client in Mbit/s, each way; the summary then reports the transmission time in hours."""
    link_latency_ms: float = 0.0
    """Latency of a message in milliseconds, used with `link_mbit`."""

    def __post_init__(self) -> None:
        require(
            NAME_PATTERN.fullmatch(self.name) is not None, f"name={self.name!r}: letters, digits, '.', '_' and '-' only"
        )
        require(self.rounds >= 0, f"rounds={self.rounds}: needs 0 or more")
        for key in ("clients", "classes_per_client", "head_epochs", "head_batch_size", "evaluate_every"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")
        for key in ("workers", "threads", "evaluation_samples"):
            require(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: needs at least 1")
        batch = self.evaluation_batch
        require(batch == "auto" or batch >= 1, f"evaluation_batch={batch}: needs at least 1, or auto")
        require(0 < self.test_share < 1, f"test_share={self.test_share}: needs a share between 0 and 1")
        require(
            self.validation is None or 0 < self.validation < 1,
            f"validation={self.validation}: needs a share between 0 and 1, or none",
        )
        require(
            self.dataset != OWN or (self.validation is None and not self.pooled),
            "dataset=own: nodes keep their data, so validation and pooled are for simulations; leave them out",
        )
        require(self.most_examples >= 1, f"most_examples={self.most_examples}: needs at least 1")
        for key in ("limit", "test_limit", "drawn", "classes", "start_with"):
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
        require(DEVICE.fullmatch(self.device) is not None, f"device={self.device}: {NEEDED}")
        require(
            self.precision != "float16" or self.frozen_weights != "bfloat16",
            "frozen_weights=bfloat16: cannot be mixed with precision=float16; use precision=bfloat16 or float32",
        )
        require(0 <= self.cache_gb < math.inf, f"cache_gb={self.cache_gb}: needs 0 or more gigabytes")
        require(0 < self.quorum <= 1, f"quorum={self.quorum}: needs a share above 0, at most 1")
        shrinkage = self.head_shrinkage
        require(
            shrinkage == "auto" or 0 < shrinkage <= 1, f"head_shrinkage={shrinkage}: needs auto, or above 0 up to 1"
        )
        warm = self.head_temperature
        require(warm == "auto" or 0 < warm < math.inf, f"head_temperature={warm}: needs auto, or a number above 0")
        require(self.head_learning_rate > 0, f"head_learning_rate={self.head_learning_rate}: needs a number above 0")

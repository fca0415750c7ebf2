"""The place where turns run: one module with its flat models and methods, in the server's process and in every worker.

A job has a head phase (unless the head is given) and a main phase. Both are methods on the same module, each with its
own selection.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subbit.codecs import make_codec
from subbit.config.resolve import Settings
from subbit.config.schema import GIVEN
from subbit.core.blame import one_line, place_of
from subbit.core.devices import find_device, host
from subbit.core.errors import ConfigError, ModelError, SubbitError
from subbit.core.randomness import derive_key
from subbit.core.registry import is_ours
from subbit.data import Examples
from subbit.data.augment import Augmentation
from subbit.exchange.exchange import State
from subbit.local.training import Local
from subbit.methods.head_codecs import head_codec
from subbit.methods.heads import HEADS, HeadMethod, HeadParameters, find_linear_head
from subbit.methods.method import Method
from subbit.methods.names import find_method
from subbit.models import FlatModel, Template, find_blocks, select_parameters
from subbit.models.cache_store import CacheStore, make_store
from subbit.models.checkpointing import checkpoint_blocks, refuse_statistics
from subbit.models.find_prefix import PROBES, find_prefix
from subbit.models.frozen_weights import narrow_frozen
from subbit.models.head_start import kaiming_
from subbit.models.linear_products import choose_products
from subbit.models.prefix_cache import PrefixCache
from subbit.models.select import note_frozen
from subbit.models.task import Task
from subbit.models.ties import copy_module, own_memory
from subbit.objectives.objective import finite
from subbit.runtime.client_memory import Memories, MemoriesInRam
from subbit.runtime.high_loss import check_selection, share_of
from subbit.runtime.messages import Phase
from subbit.runtime.private_runs import refuse_run
from subbit.runtime.problem import Problem
from subbit.wire.channel import Channel, Part, down

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
KEPT_AS = {"exact": torch.float32, "bfloat16": torch.bfloat16}
PROBE = 2  # Number of examples on which a network is tested before it is accepted.
ON_CPU, ELSEWHERE = 32, 256
"""Examples that are evaluated at a time. What EfficientNet-Lite0 computes for 128 of them is no longer in the caches of
a processor, and takes 1.7 times as long."""


def count_blocks(module: nn.Module) -> int:
    """Number of blocks of the module; 0 if it is not built of blocks."""
    try:
        return find_blocks(module)[1]
    except ModelError:
        return 0


def only_adds(method_class: type[Method[Any]], parameters: Any) -> bool:
    """Whether preparing a module is known to leave the values of its parameters alone: of our own methods it is."""
    tuning = getattr(parameters, "tuning", None)
    return is_ours(method_class) and (tuning is None or is_ours(type(tuning)))


class Workplace:
    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        job: str = "",
        memories: Memories | None = None,
        device: torch.device | None = None,
        *,
        share: bool = False,
    ) -> None:
        """`job` identifies the run in its frames; `memories` stores what the clients running here keep. The module is
        on `device`; none: as configured. With `share`, what stays frozen is in the memory of the problem's module where
        that is on the same device, until `part`."""
        run = settings.run
        self.device = find_device(run.device) if device is None else device
        self.job = job
        self.memories = MemoriesInRam() if memories is None else memories
        refuse_run(run, settings.parameters)
        self.problem = problem
        self.settings = settings
        # A copy: the user's module is not modified, and tensors in shared memory are not written to.
        method_class = find_method(run.method)
        self.module = copy_module(problem.module, share and only_adds(method_class, settings.parameters))
        note_frozen(self.module)  # Before anything is added or bound, which changes `requires_grad`.
        selection = self._prepare(method_class)
        if run.head == "kaiming":
            # The same initialisation as for the library's own models, for modules that come with a head.
            head = find_linear_head(self.module)
            own_memory(head)
            kaiming_(head, derive_key(run.seed, "model"))
        if run.checkpointing:
            checkpoint_blocks(self.module)
        if run.frozen_weights != "float32":
            trained = select_parameters(self.module, selection)
            if run.head in HEADS:
                trained += select_parameters(self.module, "head")
            narrow_frozen(self.module, trained, run.frozen_weights)
        self.module.to(self.device)
        self.fits_head = run.head in HEADS
        if self.fits_head and not problem.has_classes:
            raise ConfigError(
                f"head={run.head} fits a classifier, but objective={run.objective}: use head=keep or head=kaiming"
            )
        self.head_template: Template | None = None
        self._methods: dict[Phase, Method[Any]] = {}
        self._cache = PrefixCache(self.module, problem.objective)
        self._log_shares = torch.full((problem.classes,), math.nan)  # Until a head is fitted.
        head_names: set[str] = set()
        if self.fits_head:
            head_flat = FlatModel(self.module, "head", run.batchnorm)
            self.head_template = head_flat.template
            head_names = set(head_flat.template.names)
            training = Local(
                epochs=run.head_epochs, batch_size=run.head_batch_size, learning_rate=run.head_learning_rate
            )
            codec = head_codec(run.head_codec)
            fitting = HeadParameters(run.head, training, run.head_shrinkage, run.head_temperature, codec)
            self._methods["head"] = HeadMethod(fitting, self._task(head_flat))
        overlaps = bool(head_names & set(select_parameters(self.module, selection)))
        if overlaps and not method_class.trains_weights(settings.parameters):
            raise ConfigError(
                f"select={selection!r} masks the head that head={run.head} fits: use head=kaiming or head=keep, "
                "or select another part"
            )
        flat = FlatModel(self.module, selection, run.batchnorm)
        if (
            run.batchnorm == "average"
            and flat.statistics is not None
            and not method_class.trains_weights(settings.parameters)
        ):
            raise ConfigError("batchnorm=average: masks do not send statistics; use batchnorm=frozen or batch")
        if run.checkpointing and flat.statistics is not None:
            refuse_statistics(self.module)
        main = self._methods["main"] = method_class(settings.parameters, self._task(flat))
        self.drawn = None if run.selection == "uniform" else run.drawn or 2 * main.task.participants
        """Number of clients asked for their loss per round, with selection by loss."""
        if self.drawn is not None:
            check_selection(main, self.drawn)
        self._head_is_weights = overlaps and bool(main.down_parts())
        """A head that is trained further is part of the state and is sent with the weights, if these are sent."""
        self.sends_head = self.fits_head and (main.needs_start or not self._head_is_weights)

    def _prepare(self, method_class: type[Method[Any]]) -> str:
        """Let the method add its modules; returns the selection of what is trained."""
        run = self.settings.run
        key = derive_key(run.seed, "added-modules")
        implied = method_class.prepare(self.module, self.settings.parameters, self.problem.classes, key)
        if implied is not None:
            if run.select != "auto":
                raise ConfigError(f"select={run.select!r}: {run.method} trains {implied!r} here; leave select=auto")
            return implied
        if run.select == "auto":
            return method_class.default_selection(
                self.settings.parameters, count_blocks(self.module), self.problem.pretrained
            )
        return run.select

    def _task(self, flat: FlatModel) -> Task:
        run = self.settings.run
        eligible = len(self.problem.clients_with_data())
        if not eligible:
            raise ConfigError("no client has any data")
        return Task(
            flat=flat,
            classes=self.problem.classes,
            seed=run.seed,
            rounds=run.rounds,
            clients=self.problem.clients,
            participants=min(eligible, share_of(run.participation, self.problem.clients)),
            pretrained=self.problem.pretrained,
            form=self.problem.form,
            job=self.job,
            examples=self.problem.sizes,
            objective=self.problem.objective,
            augmentation=None if run.augment is None else Augmentation(run.augment),
            cache=self._cache,
            precision=PRECISIONS[run.precision],
            log_shares=self._log_shares,
            products=choose_products(run.products, self.device),
        )

    def part(self) -> None:
        """Give the module memory of its own, for whoever uses it next."""
        own_memory(self.module, self.problem.module)

    def method(self, phase: Phase) -> Method[Any]:
        return self._methods[phase]

    def attach(self, phase: Phase) -> None:
        """Bind the module to the flat model of the phase. Required before running the module or writing a head for that
        phase: both phases share one module, which is bound to one of them at a time, initially to the main phase."""
        self._methods[phase].task.flat.attach()

    def open_cache(self, store: CacheStore | None = None) -> CacheStore | None:
        """Keep what the frozen layers compute, in the given store or a new one; none if there is nothing to keep."""
        run, problem = self.settings.run, self.problem
        single = isinstance(problem.train, Examples) and isinstance(problem.test, Examples) and problem.form.is_single
        # Under autocast the values that enter a layer may be half or whole, and the cache would have to keep both.
        whole = run.precision == "float32"
        if run.cache == "off" or not whole or not single or problem.objective.passes_labels:
            return None
        flat = self.method("main").task.flat
        head = () if self.head_template is None else self.head_template.names
        prefix = find_prefix(flat, head, problem.some(max(PROBES)).tensor)
        if prefix is not None and store is None:
            rows, dtype = len(problem.train) + len(problem.test), KEPT_AS[run.cache]
            store = make_store((rows, prefix.width), dtype, int(run.cache_gb * 1e9), shared=run.workers > 1)
        if prefix is None or store is None:
            return None
        self._cache.open(prefix, store)
        return store

    # Fitted head.

    def write_head(self, head: NDArray[np.float32] | None) -> None:
        """Write a fitted head into the module, whichever buffer holds its parameters, and into the common start. The
        shares of the classes come with it."""
        if head is None or self.head_template is None:
            return
        flat = self._methods["main"].task.flat
        start = dict(zip(flat.template.names, flat.template.views(flat.initial), strict=True))
        weights, shares = np.split(head, [self.head_template.size])
        self._log_shares.copy_(torch.from_numpy(shares))
        with torch.no_grad():
            for name, values in zip(
                self.head_template.names, self.head_template.views(torch.from_numpy(weights)), strict=True
            ):
                self.module.get_parameter(name).copy_(values)
                if name in start:
                    start[name].copy_(values)

    def pack_head(self, head: NDArray[np.float32]) -> bytes:
        return self._head_channel().pack(head, down(0))

    def unpack_head(self, frame: bytes) -> NDArray[np.float32]:
        head: NDArray[np.float32] = self._head_channel().unpack(frame, down(0))[0]
        return head

    def _head_channel(self) -> Channel:
        """The head is not a part of the method; it has its own names and size."""
        if self.head_template is None:
            raise ConfigError("this job fits no head")
        part = Part("head", make_codec("dyadic"), self.head_template.size + self.problem.classes)
        return Channel(part, self.head_template.digest(f"{self.job}/main/head"))

    # Evaluation.

    def write_network(self, state: State | None, network: str, key: int, head: NDArray[np.float32] | None) -> None:
        """Write the network of a state or, without one, the module as it was before the main phase."""
        self.attach("main")
        method = self.method("main")
        if state is not None:
            if method.map.relative:
                self.write_head(head)  # The state is a distance from a start that contains it.
            method.write_network(state, network, key)
            if not self._head_is_weights:
                self.write_head(head)
            return
        with torch.no_grad():
            method.task.flat.weights.copy_(method.task.flat.initial)
        self.write_head(head)

    def refuse_useless(self, state: State) -> None:
        """Raises `SubbitError` if the network of the state is unusable; large but finite values can cause this."""
        method = self.method("main")
        if method.state_is_counts or method.personal:
            return
        self.write_network(state, method.primary_network, 0, None)
        method.task.flat.evaluation_mode()
        with torch.no_grad():
            batch = self.problem.some_tests(PROBE).to(self.device)
            outputs = self.problem.objective.outputs(self.module, batch)
        if not finite(outputs):
            raise SubbitError("the outputs of the network would not be finite")

    @cached_property
    def tally_width(self) -> int:
        """How many numbers the objective has for an example."""
        self.attach("main")
        self.method("main").task.flat.evaluation_mode()
        batch, objective = self.problem.some_tests(PROBE).to(self.device), self.problem.objective
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return objective.tally(objective.outputs(self.module, batch), batch).shape[1]

    def tally(self, examples: NDArray[np.int64]) -> NDArray[np.float64]:
        """How the network, as written, does on each of these test examples: a row of the objective's numbers."""
        self.method("main").task.flat.evaluation_mode()
        rows, size = [], self.settings.run.evaluation_batch
        if size == "auto":
            size = ON_CPU if self.device.type == "cpu" else ELSEWHERE
        with torch.no_grad():
            for start in range(0, len(examples), size):
                batch = self.problem.test_batch(examples[start : start + size])
                rows.append(self._tally(batch.to(self.device)))
        return np.concatenate(rows) if rows else np.zeros((0, 0))

    def _tally(self, batch: Examples) -> NDArray[np.float64]:
        outputs = self.method("main").task.outputs
        try:
            rows: NDArray[np.float64] = host(self.problem.objective.tally(outputs(batch), batch))
        except SubbitError:
            raise
        except Exception as error:
            if self.problem.dataset_name != GIVEN:
                raise  # Our module and data: a bug, whose traceback helps.
            raise ModelError(f"the network cannot be evaluated: {one_line(error)}{place_of(error)}") from error
        return rows

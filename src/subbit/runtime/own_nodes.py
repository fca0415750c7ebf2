"""A problem whose data are on the nodes of a deployment, each node's on that node alone (`dataset=own`).

server   no training data, and test data only with `test_dataset`; how many examples a client has is what its node
         announced when it connected
node     its own data, whichever client the server calls it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.config.schema import OWN, RunConfig
from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key, numpy_generator, torch_randomness
from subbit.data import Data, Examples, SplitSummary, load_dataset
from subbit.data.form import Form, form_of, read_inputs
from subbit.data.needs import Reading
from subbit.data.node_data import read_folder
from subbit.data.own_data import as_data
from subbit.data.stored import Collate
from subbit.models.load_model import own_tokenizer
from subbit.models.ties import aligned
from subbit.objectives import Objective, find_objective
from subbit.runtime.problem import Problem, is_pretrained, load_module

LEAST_TO_HOLD_OUT = 2
CHECKED = 64
"""Of a data set that is read batch by batch, so many examples are checked before the run."""


@dataclass(frozen=True)
class OwnProblem(Problem):
    """`train` and `test` are what is on this machine."""

    expected: int = 0
    """Number of clients that may take part."""
    agreed: Form | None = None
    announced: dict[int, int] = field(default_factory=dict)
    """On the server: number of training examples by client, as far as nodes have connected."""

    @property
    def clients(self) -> int:
        return self.expected

    @property
    def sizes(self) -> dict[int, int]:
        return self.announced

    @property
    def form(self) -> Form:
        if self.agreed is None:
            raise ConfigError("dataset=own: the form of the inputs is not agreed on; set input")
        return self.agreed

    def client_data(self, client: int) -> Data:
        return self.train

    def own_test(self, client: int) -> NDArray[np.int64]:
        return np.arange(len(self.test))

    def test_batch(self, examples: NDArray[np.int64]) -> Examples:
        return self.test.batch(examples)

    def clients_with_data(self) -> list[int]:
        return list(range(self.expected))

    def some(self, count: int) -> Examples:
        return self.form.zeros(count) if len(self.train) < count else super().some(count)

    def some_tests(self, count: int) -> Examples:
        return self.form.zeros(count) if len(self.test) < count else super().some_tests(count)

    def split_summary(self) -> SplitSummary:
        return SplitSummary(self.expected, 0, [], [], 0.0, 0, OWN)


@dataclass(frozen=True)
class Own:
    """What an app of one's own brings, instead of keys of the configuration."""

    build: Callable[[], nn.Module] | None = None
    load: Callable[[dict[str, Any]], Any] | None = None
    """Of a node's `--node-config`: its data, or training and test data."""
    objective: Objective | None = None
    collate: Collate | None = None
    in_memory: bool | None = None


NOTHING_OWN = Own()


class FormError(DataError):
    """Data of another form than the job has. The message has types and shapes only, and may leave the node."""


def server_problem(run: RunConfig, own: Own = NOTHING_OWN) -> OwnProblem:
    """What the server has: the module and, perhaps, test data."""
    objective, form = agreed(run, own)
    test: Data = form.zeros(0)
    if run.test_dataset is not None:
        found = load_dataset(
            run.test_dataset,
            test_limit=run.test_limit,
            classes=run.classes,
            seed=run.seed,
            reading=Reading(objective, own_tokenizer(run.model) or "words"),
        )
        test = found.test
        _check_form(test.batch(np.arange(1)), form, objective, "test_dataset")
    module = _module(run, form, own)
    return OwnProblem(
        module=module,
        train=form.zeros(0),
        parts=(),
        test=test,
        classes=run.classes or 1,
        pretrained=is_pretrained(run, module),
        model_name=run.model,
        dataset_name=OWN,
        objective=objective,
        expected=run.clients,
        agreed=form,
        class_names=tuple(class_names(run) or ()) or None,
    )


def node_problem(run: RunConfig, node: dict[str, Any], own: Own = NOTHING_OWN) -> OwnProblem:
    """What a node has. `node` is its `--node-config`."""
    train, test = node_data(run, node, own)
    return replace(server_problem(replace(run, test_dataset=None), own), train=train, test=test)


def agreed(run: RunConfig, own: Own) -> tuple[Objective, Form]:
    objective = own.objective or find_objective(run.objective)
    if run.input is None:
        raise ConfigError('dataset=own: say what an input is, e.g. input="uint8 3x32x32"')
    if run.classes is None and objective.counts_classes:
        raise ConfigError("dataset=own: say how many classes there are, e.g. classes=10")
    names = class_names(run)
    if names is not None and len(names) != run.classes:
        raise ConfigError(f"class_names: found {len(names)} names, but classes={run.classes}")
    inputs = read_inputs(run.input)
    return objective, Form(inputs, objective.label_form(inputs, run.classes or 1))


def class_names(run: RunConfig) -> list[str] | None:
    return None if run.class_names is None else [name.strip() for name in run.class_names.split(",")]


def node_data(run: RunConfig, node: dict[str, Any], own: Own = NOTHING_OWN) -> tuple[Data, Data]:
    """Training and test data of this node, checked against what was agreed on."""
    objective, form = agreed(run, own)

    def read(dataset: Any) -> Data:
        return as_data(dataset, objective.prepare, own.collate, own.in_memory)

    found = own.load(node) if own.load is not None else _from_config(run, node, objective)
    # A pair of tensors is one data set, inputs and labels.
    if isinstance(found, tuple) and len(found) == 2 and not isinstance(found[0], Tensor | np.ndarray):
        train, test = map(read, found)
    else:
        train, test = hold_out(read(found), run.test_share, derive_key(run.seed, "node-test"))
    for what, data in (("training", train), ("test", test)):
        if not len(data):
            raise FormError(f"no {what} examples; need at least one")
        some = data if isinstance(data, Examples) else data.batch(np.arange(min(CHECKED, len(data))))
        _check_form(some, form, objective, f"{what} data")
        if run.classes is not None and objective.classes(some.labels) > run.classes:
            raise FormError(f"{what} data: more classes than the job has, classes={run.classes}")
    return train, test


def _from_config(run: RunConfig, node: dict[str, Any], objective: Objective) -> Any:
    where, where_test = (node.get(key) for key in ("data", "test"))
    if not isinstance(where, str) or not where:
        raise FormError("""no data: start the node with --node-config 'data="FOLDER OR FILE"'""")
    train, test = _open(run, where, objective)
    if isinstance(where_test, str) and where_test:
        others = _open(run, where_test, objective)
        test = others[0] if others[1] is None else others[1]
    return train if test is None else (train, test)


def _open(run: RunConfig, where: str, objective: Objective) -> tuple[Data, Data | None]:
    folder = read_folder(where, class_names(run))
    if folder is not None:
        return folder
    names = tuple(class_names(run) or ())
    reading = Reading(objective, own_tokenizer(run.model) or "words", names)
    found = load_dataset(where, classes=run.classes, seed=run.seed, reading=reading)
    if found.notes and not names and objective.labels_are_classes and any(map(_names_classes, found.notes)):
        # In the order of this node's own names, the same number would mean something else on another node.
        raise FormError("the labels are names; the job must say what the classes are: class_names")
    return found.train, found.test


def _names_classes(note: str) -> bool:
    return note.startswith("classes ")


def hold_out(data: Data, share: float, key: int) -> tuple[Data, Data]:
    """Training and test examples; the same in every round, since the key decides."""
    if len(data) < LEAST_TO_HOLD_OUT:
        raise FormError(f"{len(data)} examples; need at least {LEAST_TO_HOLD_OUT}, one of them for testing")
    order = numpy_generator(key).permutation(len(data))
    count = min(len(data) - 1, max(1, round(share * len(data))))
    return data.select(np.sort(order[count:])), data.select(np.sort(order[:count]))


def _check_form(examples: Examples, form: Form, objective: Objective, what: str) -> None:
    found = form_of(examples)
    if found.inputs != form.inputs:
        raise FormError(f"{what}: found inputs {found}, but this job has {form}")
    if found.labels != form.labels and objective.fixes_labels:
        raise FormError(f"{what}: found labels {found.labels}, but this job has {form.labels}")


def _module(run: RunConfig, form: Form, own: Own) -> nn.Module:
    if own.build is None:
        return aligned(load_module(run, run.classes or 1, form.single.shape if form.is_single else None))
    with torch_randomness(derive_key(run.seed, "model")):  # Everybody starts with the same weights.
        module = own.build()
    if not isinstance(module, nn.Module):
        raise ConfigError(f"build_module: found {type(module).__name__}; needs to return a torch.nn.Module")
    return module

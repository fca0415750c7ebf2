"""A first job as a commented TOML file, from what `subbit init` was told and has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tomli_w

from subbit.core.errors import ConfigError
from subbit.setup.goals import GOALS, Choice, choose
from subbit.setup.seen_data import Seen

BUNDLED = {"images": "subbit/vit-micro", "numbers": "mlp", "text": "char-lstm", "unknown": "subbit/vit-micro"}
LANGUAGE_MODEL = "subbit/gpt-micro"
SMALL = ("mlp", "mlp-small", "mnistfc", "conv4", "conv6", "convnet", "convmixer", "vgg-small", "char-lstm", "next-char")
SPLITS = {
    "even": "every client has about the same",
    "skewed": "clients have few classes each",
    "natural": "one client per owner of the rows",
}


@dataclass(frozen=True)
class Wanted:
    """The four answers."""

    seen: Seen
    model: str
    """`bundled`, a name, a folder, or my_package:build."""
    clients: int
    split: str
    nodes: bool
    """Real nodes with Flower, each with its own data."""
    goal: str

    @property
    def network(self) -> str:
        if self.model != "bundled":
            return self.model
        return LANGUAGE_MODEL if self.seen.objective == "language" else BUNDLED[self.seen.inputs]


def write_job(wanted: Wanted) -> str:
    """The text of the file."""
    seen, network = wanted.seen, wanted.network
    own, small = ":" in network, network in SMALL
    has_classes = seen.objective == "classification"
    choice = choose(wanted.goal, pretrained=not own and not small, has_classes=has_classes, is_bundled_small=small)
    parts = [
        _comment("Made by subbit init. Every key: docs/methods.md, docs/data.md, subbit list methods NAME."),
        _data(wanted),
        _network(seen, network, own, small),
        _method(wanted, choice),
    ]
    return "\n".join(parts)


def _data(wanted: Wanted) -> str:
    seen = wanted.seen
    if wanted.nodes:
        if not seen.shape:
            raise ConfigError(
                "the shape of one input must be known for nodes with their own data: give --data a folder of images "
                "by class or a table of numbers, as one node has them, or write the keys by hand (docs/own-nodes.md)"
            )
        lines = [
            _comment(f"Data: every node brings its own and keeps it. Seen here: {seen.told}."),
            _keys(dataset="own", input=seen.shape, clients=wanted.clients),
        ]
        if seen.classes:
            lines.append(_keys(classes=len(seen.classes), class_names=",".join(seen.classes)))
        return "".join([*lines, _keys(start_with=min(2, wanted.clients))])
    text = _comment(f"Data: {seen.told}.") + _keys(dataset=seen.dataset)
    if wanted.seen.objective != "classification":
        text += _keys(objective=wanted.seen.objective)
    text += "\n" + _comment(f"Simulated clients on this machine: {SPLITS[wanted.split]}.")
    text += _keys(clients=wanted.clients)
    if wanted.split == "natural":
        return text + _keys(partition="natural")
    if wanted.seen.objective != "classification":
        return text + _keys(partition="iid")
    return text + _keys(partition="dirichlet", alpha=10.0 if wanted.split == "even" else 0.3)


def _network(seen: Seen, network: str, own: bool, small: bool) -> str:
    if own:
        text = _comment("Network: your function, called with those of classes, input_shape and seed that it takes.")
        text += _comment("Say pretrained = true if it loads weights that are worth keeping (docs/own-models.md).")
        return text + _keys(model=network, pretrained=False)
    if seen.objective == "language":
        return _comment("Network: continues texts, and keeps its own output layer.") + _keys(model=network)
    if small:
        return _comment("Network: small, with random weights and a random head.") + _keys(model=network, head="kaiming")
    if seen.objective != "classification":
        return _comment("Network: pre-trained, with a new head.") + _keys(model=network, head="kaiming")
    text = _comment("Network: pre-trained. Its new head is fitted first, in closed form, in one round.")
    return text + _keys(model=network, head="lda", head_shrinkage="auto")


def _method(wanted: Wanted, choice: Choice) -> str:
    text = _comment(f"Goal: {GOALS[wanted.goal]}.")
    text += _comment(f"{choice.method}: {choice.why}.") + _keys(method=choice.method, **choice.keys)
    return text + "\n" + _comment("More rounds, better score, more bytes.") + _keys(rounds=10)


def _comment(text: str) -> str:
    """A line; nothing in the data can end it."""
    return f"# {''.join(letter if letter.isprintable() else ' ' for letter in text)}\n"


def _keys(**values: Any) -> str:
    return tomli_w.dumps(values)

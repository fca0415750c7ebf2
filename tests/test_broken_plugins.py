"""Components of others that are wrong: one line that names them, and the clients that they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import nn

from subbit.codecs import Codec, Kind
from subbit.codecs.dense import Dense
from subbit.config.resolve import resolve
from subbit.core.errors import ConfigError, FrameError, PluginError, QuorumError
from subbit.core.registry import register
from subbit.data import load_dataset
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.trial import try_job
from tests.problems import digits_problem, settings

pytestmark = pytest.mark.usefixtures("forgetting")
SMALL = {"limit": 200, "test_limit": 100, "rounds": 1, "clients": 4, "model": "mlp", "head": "keep", "method": "fedavg"}


def codec(name: str, **functions: Any) -> None:
    """Dense values, with one function changed."""
    plain = Dense()
    own = {"encode": lambda self, payload, shared: plain.encode(payload, shared)}
    own |= {"decode": lambda self, data, shared: plain.decode(data, shared)}
    facts = {"number": 230, "kind": Kind.VECTOR, "exact": True, "summary": "", "__module__": __name__}
    register("codec", name)(dataclass(frozen=True)(type("Mine", (Codec,), {**facts, **own, **functions})))


def raising(*arguments: Any, **options: Any) -> Any:
    raise ZeroDivisionError("mine\nis broken")


def test_a_decoder_that_raises_costs_its_clients_the_round() -> None:
    codec("bad-decoder", decode=raising)
    with pytest.raises(QuorumError, match="payload: codec 'bad-decoder', decode: ZeroDivisionError: mine is broken"):
        run_job(digits_problem(), settings(method="fedavg", codec="bad-decoder"))
    with pytest.raises(FrameError, match="'bad-decoder', decode"):
        run_job(digits_problem(), settings(method="fedavg", down_codec="bad-decoder"))


def test_a_decoder_of_a_wrong_length() -> None:
    codec("short", decode=lambda self, data, shared: np.zeros(3, np.float32))
    with pytest.raises(FrameError, match=r"codec 'short' decoded 'change' to \[3\] values, expected \[1210\]"):
        run_job(digits_problem(), settings(method="fedavg", down_codec="short"))


def test_an_encoder_that_raises() -> None:
    codec("bad-encoder", encode=raising)
    with pytest.raises(PluginError, match="codec 'bad-encoder', encode: ZeroDivisionError"):
        run_job(digits_problem(), settings(method="fedavg", down_codec="bad-encoder"))


@dataclass(frozen=True)
class WithoutSize:
    def accumulator(self) -> Any:
        return None


@dataclass(frozen=True)
class Unordered:
    def accumulator(self, size: int) -> Any:
        return object()


@pytest.mark.parametrize(("thing", "words"), [(WithoutSize, "TypeError"), (Unordered, "lacks order_free")])
def test_an_aggregator_whose_accumulator_does_not_work(thing: Any, words: str) -> None:
    register("aggregator", "odd")(type("Odd", (thing,), {}))
    with pytest.raises(PluginError, match=words):
        try_job(digits_problem(), settings(method="fedavg", aggregator="odd"))


@dataclass(frozen=True)
class Needy:
    size: int

    def make(self) -> None: ...


@dataclass(frozen=True)
class Empty: ...


class Plain:
    def make(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "thing", "words"),
    [
        ("aggregator", Empty, "needs a function accumulator"),
        ("optimizer", Empty, "needs a function make"),
        ("optimizer", Plain, "needs a class with @dataclass"),
        ("optimizer", print, "needs a class with @dataclass"),
        ("optimizer", Needy, "its option 'size' needs a default"),
    ],
)
def test_a_piece_that_cannot_be_one_is_refused_when_it_is_registered(kind: str, thing: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        register(kind, "mine")(thing)


@pytest.mark.parametrize("kind", ["partition", "model"])
@pytest.mark.parametrize(("thing", "words"), [(raising, "ZeroDivisionError: mine is broken"), (lambda: 1, "TypeError")])
def test_a_partition_or_model_that_raises(kind: str, thing: Any, words: str) -> None:
    register(kind, "mine")(thing)
    with pytest.raises(PluginError, match=f"{kind} 'mine': {words}") as caught:
        build_problem(resolve({**SMALL, kind: "mine"}).run)
    assert "\n" not in str(caught.value)


def test_a_data_set_that_raises() -> None:
    register("dataset", "mine")(raising)
    with pytest.raises(PluginError, match="data set 'mine': ZeroDivisionError"):
        load_dataset("mine")


def test_a_model_that_does_not_take_the_data() -> None:
    register("model", "mine")(lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes)))
    chosen = resolve({**SMALL, "model": "mine"})
    with pytest.raises(Exception, match=r"uint8 \[n, 1, 8, 8\].*inputs\.float\(\) / 255"):
        try_job(build_problem(chosen.run), chosen)


def test_options_of_a_data_set_have_the_types_of_their_defaults() -> None:
    seen = {}

    def mine(size: int = 3, *, spread: float = 1.0, how: str = "a", odd: bool = False, most=None):  # type: ignore[no-untyped-def]
        seen.update(size=size, spread=spread, how=how, odd=odd, most=most)
        points = np.zeros((4, 2), np.float32)
        return (points, np.arange(4)), (points, np.arange(4))

    register("dataset", "mine")(mine)
    load_dataset("mine?size=100000&spread=0.5&how=b&odd=true&most=7")
    assert seen == {"size": 100000, "spread": 0.5, "how": "b", "odd": True, "most": 7}
    for text, words in (("size=x", "needs a whole number"), ("sizes=3", "the options are size, spread")):
        with pytest.raises(ConfigError, match=words):
            load_dataset(f"mine?{text}")

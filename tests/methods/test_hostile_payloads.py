"""Payloads that every codec decodes and no honest client sends, through every method's server half.

Each lie stands beside honest answers. Nothing but `PayloadError` may come out of `examine` and `accumulate`; a refused
answer leaves the accumulator as it was, so that the step is the one of the honest alone; and whatever is accepted
leaves a finite state whose networks compute finite numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from subbit.codecs import Kind
from subbit.codecs.packed import pack_bits
from subbit.core.errors import PayloadError
from subbit.methods.method import Method, Part, Payloads, State, Turn
from subbit.methods.names import method_names
from subbit.runtime.downlink import Broadcasts, make_downlink
from subbit.runtime.messages import Phase
from subbit.runtime.workplace import Workplace
from tests.problems import conv_net, digits_problem, mlp, settings, small_vit

HONEST = 2
EXAMPLES = 80  # Of each client of the problem.
REAL_LIES = (3.4e38, -3.4e38, 1e30, -1e30, 1e5, -1e5, -3.0, -1e-3, 0.0, 1.0, np.nan, np.inf)
EXAMPLE_LIES = (0, EXAMPLES, 2**32 - 1)

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in method_names()),
    *((name, {"aggregator": "trimmed"}) for name in ("fedavg", "sparse-masks", "controlled-flips")),
    *((name, {"aggregator": "median"}) for name in ("fedavg", "sparse-masks", "controlled-flips")),
    *((name, {"batchnorm": "average"}) for name in ("fedavg", "bnn", "fedcode", "gradmask", "lg-fedavg")),
    ("fedavg", {"clip_norm": 0.5}),
    ("fedavg", {"down_codec": "eden", "down_bits": 0.25}),
    ("subbit", {"dimensions": 400}),
    ("subbit", {"dimensions": 400, "rotate": True}),
    ("sparse-masks", {"bits_per_round": 3000}),
    ("sparse-masks", {"residuals": False}),
    ("sparse-masks", {"aggregator": "agreement"}),
    ("zampling", {"codec": "dense"}),
    ("zampling", {"codec": "mask"}),
    ("gradmask", {"mask": "least-sensitive", "mask_scope": "global", "rounds": 9}),
    ("fedmask", {"real_values": "federated"}),
    ("fedmask", {"communication": "dense"}),
    ("fedmask", {"aggregation": "average"}),
    ("fedpeft", {"tuning": "lora", "lora_mean": "product"}),
    ("fedpeft", {"tuning": "lora"}),
]
CASES = [*((name, options, "main") for name, options in OPTIONS), ("fedavg", {}, "probe"), ("fedavg", {}, "lda")]


def made(name: str, options: dict[str, Any], phase: str) -> tuple[Method[Any], Workplace]:
    module = conv_net() if "batchnorm" in options else small_vit() if options.get("tuning") == "lora" else mlp()
    head = {} if phase == "main" else {"head": phase}
    workplace = Workplace(digits_problem(module), settings(method=name, **{"rounds": 4, **options, **head}))
    return workplace.method(workplace_phase(phase)), workplace


def workplace_phase(phase: str) -> Phase:
    return "main" if phase == "main" else "head"


def lies_about(part: Part, honest: Any, size: int) -> Iterator[tuple[str, Any]]:
    """Everything that the codec of the part could decode to, and worse: what a looser codec would let through."""
    if part.optional:
        yield "left out", None
    if part.codec.kind is Kind.BITS:
        yield "all zeros", pack_bits(np.zeros(size, np.bool_))
        yield "all ones", pack_bits(np.ones(size, np.bool_))
        yield "inverted", pack_bits(~np.unpackbits(honest, count=size, bitorder="little").astype(np.bool_))
        yield "random", pack_bits(np.random.default_rng(0).random(size) < 0.5)
        return
    for value in REAL_LIES:
        yield f"all {value:g}", np.full(size, value, np.float32)
        some = np.zeros(size, np.float32) if honest is None else honest.copy()
        some[: max(1, size // 7)] = value
        yield f"some {value:g}", some
    if honest is not None:
        for factor in (-1.0, -10.0, 1e6, -1e6):
            yield f"times {factor:g}", honest * np.float32(factor)


def same(first: State, second: State) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(np.asarray(first[name]), np.asarray(second[name])) for name in first
    )


@pytest.mark.parametrize(("name", "options", "phase"), CASES, ids=str)
@pytest.mark.parametrize("number", [0, 1], ids=["first round", "second round"])
def test_a_lie_is_refused_or_does_no_damage(name: str, options: dict[str, Any], phase: str, number: int) -> None:
    method, workplace = made(name, options, phase)
    if phase != "main" and number:
        pytest.skip("a head is fitted in one round")
    state = method.start()
    view = make_downlink(method, workplace_phase(phase), state, Broadcasts(), number).view
    honest = []
    for client in range(HONEST + 1):
        update = method.train(view, workplace.problem.client_data(client), Turn(number, client, {}))
        honest.append(as_received(method, view, update.payloads, number, client))

    def accumulated() -> Any:
        accumulator = method.accumulator()
        for client in range(HONEST):
            method.examine(view, honest[client], EXAMPLES, client)
            method.accumulate(accumulator, view, honest[client], EXAMPLES, number, client)
        return accumulator

    alone = method.step(state, accumulated(), number)
    tried = refused = 0
    for part in method.up_parts():
        truth = honest[HONEST][part.name]
        size = method.shared(part, view, number, HONEST).size
        for lie, payload in lies_about(part, truth, size):
            for examples in EXAMPLE_LIES:
                what = f"{part.name}: {lie}, {examples} examples"
                accumulator, payloads = accumulated(), {**honest[HONEST], part.name: payload}
                tried += 1
                try:
                    with np.errstate(all="ignore"):
                        method.examine(view, payloads, examples, HONEST)
                        method.accumulate(accumulator, view, payloads, examples, number, HONEST)
                except PayloadError:
                    refused += 1
                    assert same(method.step(state, accumulator, number), alone), what
                    continue
                after = method.step(state, accumulator, number)
                for key, value in after.items():
                    assert np.isfinite(value).all(), f"{what}: {key}"
                if tried % 5 == 0:
                    check_network(workplace, method, after, what, phase)
    has_real = any(part.codec.kind is Kind.VECTOR for part in method.up_parts())
    assert refused > 0 or not has_real
    assert tried > 0 or not method.up_parts()


def as_received(method: Method[Any], view: Any, payloads: Payloads, number: int, client: int) -> Payloads:
    """What the server decodes of a client's payloads."""
    received: Payloads = {}
    for part in method.up_parts():
        payload, known = payloads[part.name], method.shared(part, view, number, client)
        received[part.name] = None if payload is None else part.codec.decode(part.codec.encode(payload, known), known)
    return received


def check_network(workplace: Workplace, method: Method[Any], state: State, what: str, phase: str) -> None:
    if phase == "main":
        workplace.write_network(state, method.primary_network, 1, None)
    else:
        method.write_network(state, method.primary_network, 1)
    method.task.flat.evaluation_mode()
    with torch.no_grad():
        outputs = method.task.flat.module(workplace.problem.test.inputs[:8])
    assert bool(torch.isfinite(outputs).all()), what

"""Clients that train normally and then send something else, in one process and in valid frames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from chaos.lies import FRAMES, PAYLOADS, Frames
from chaos.trial import BOUNDS, EQUAL, FailedError, Outcome, Trial
from subbit.runtime.client import client_turn
from subbit.runtime.downlink import receive
from subbit.runtime.engines import InProcess
from subbit.runtime.messages import Order, Reply, decode_parts, encode_parts
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import up


class WithLiars(InProcess):
    """`lies` are the attacks of each malicious client, which still behaves honestly in some rounds."""

    def __init__(self, workplace: Workplace, lies: dict[int, list[str]], honesty: float, seed: int) -> None:
        super().__init__(workplace, threads=1)
        self.workplace, self.lies, self.honesty, self.seed = workplace, lies, honesty, seed
        self.last: Frames = ()
        self.earlier: dict[int, Frames] = {}
        self.told = 0
        self.harmed: list[str] = []
        """Honest clients that could not do their work, and why."""

    def train(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for order in orders:
            random = Random(f"{self.seed}/{order.phase}/{order.round_number}/{order.client}")
            reply = client_turn(self.workplace, order)
            honest = reply
            if reply.failure is not None:
                self.harmed.append(f"client {order.client} in round {order.round_number}: {reply.failure.message}")
            liar = order.client in self.lies and order.purpose == "train" and reply.failure is None
            if liar and random.random() >= self.honesty:
                frames = self.forged(order, reply, random.choice(self.lies[order.client]), random)
                self.told += frames != reply.frames
                reply = Reply(order.client, frames, None, reply.kept, reply.observations)
            self.last, self.earlier[order.client] = honest.frames, honest.frames
            yield reply

    def forged(self, order: Order, reply: Reply, name: str, random: Random) -> Frames:
        if name in FRAMES:
            return FRAMES[name](reply.frames, self.last, self.earlier.get(order.client, ()), random)
        method, where = self.workplace.method(order.phase), up(order.round_number, order.client)
        view = receive(method, order, self.workplace.memories.read(order.client, order.kept))
        payloads, examples = decode_parts(method, order.phase, where, reply.frames, view)
        lies = {part: None if value is None else PAYLOADS[name](value, random) for part, value in payloads.items()}
        try:
            with np.errstate(all="ignore"):
                return encode_parts(method, order.phase, where, lies, view, examples)
        except Exception:  # The codec cannot encode such a payload: send garbage in a valid frame instead.
            return FRAMES["rubbish in a good frame"](reply.frames, (), (), random)


def liar(trial: Trial) -> Outcome:
    """Up to half of the clients send false data in some of the rounds."""
    trial.choose_job(workers=1)
    clients = trial.normal.summary["clients"]
    liars = trial.random.sample(range(clients), trial.random.randint(1, clients // 2))
    every = sorted({**FRAMES, **PAYLOADS})
    lies = {client: trial.random.sample(every, trial.random.choice((1, 1, 3))) for client in liars}
    honesty = trial.random.choice((0.0, 0.0, 0.5))
    trial.say(f"lies {lies}, honest {honesty}")
    answer = trial.compute(lambda: _attacked(trial, lies, honesty))
    if answer.get("harmed"):
        raise FailedError(f"lies were taken, and then honest clients fail: {answer['harmed'][0]}; {answer}")
    if "line" in answer:
        trial.say(answer["line"])
        return Outcome("one line", answer["line"])
    if "ended" in answer:
        raise FailedError(f"a liar ends the run: {answer['ended']}")
    if answer["not finite"]:
        raise FailedError(f"not finite: {answer['not finite']}")
    summary = json.loads((trial.path / "summary.json").read_text())
    if summary["failures"]:
        # Some false uploads may have been accepted. The run can be compared only if all of them were rejected.
        if summary["failed_clients"] == answer["told"]:
            trial.same_as_failed(summary, trial.path)
        return Outcome("counted", str(summary["failures"]))
    same = summary["model_sha256"] == trial.normal.summary["model_sha256"]
    return Outcome(EQUAL) if same else Outcome(BOUNDS, f"{answer['told']} lies were taken")


def _attacked(trial: Trial, lies: dict[int, list[str]], honesty: float) -> dict[str, Any]:
    from subbit.config.resolve import resolve
    from subbit.core.errors import QuorumError, SubbitError
    from subbit.runtime.folder import RunFolder
    from subbit.runtime.problem import build_problem
    from subbit.runtime.run import run_job

    settings = resolve({}, trial.run_words()[1:])
    made: list[WithLiars] = []

    def engine(workplace: Workplace) -> WithLiars:
        made.append(WithLiars(workplace, lies, honesty, trial.seed))
        return made[0]

    try:
        result = run_job(build_problem(settings.run), settings, RunFolder.create(settings, ""), make_engine=engine)
    except QuorumError as error:
        return {"line": str(error), "harmed": made[0].harmed}
    except SubbitError as error:
        return {"ended": f"{type(error).__name__}: {error}"}
    state = RunFolder.open(trial.path).last_state()
    arrays = {**state.method, **{name: value.numpy() for name, value in result.module.state_dict().items()}}
    infinite = [name for name, value in arrays.items() if not np.isfinite(value).all()]
    return {"told": made[0].told, "not finite": infinite, "harmed": made[0].harmed}

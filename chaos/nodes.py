"""Flower nodes of an in-process grid that send false data, disappear or lose memory, while the server is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from tests.flower.grid import FakeGrid

from chaos.lies import FRAMES
from chaos.trial import EQUAL, FailedError, Outcome, Trial
from subbit.config.resolve import Settings, resolve
from subbit.core.errors import QuorumError, SubbitError
from subbit.flower.server import continue_or_create, serve
from subbit.runtime.problem import build_problem

DEADLINE = 0.3
Behaviour = Callable[[Message, Random], Message | None]


def _frames(name: str) -> Behaviour:
    def answer(reply: Message, random: Random) -> Message | None:
        if "frames" in reply.content:
            own = tuple(reply.content["frames"].values())
            lies = FRAMES[name](own, own, own, random)  # type: ignore[arg-type]
            reply.content["frames"] = ConfigRecord({str(at): frame for at, frame in enumerate(lies)})
        return reply

    return answer


def _record(name: str, record: Callable[[], Any]) -> Behaviour:
    def answer(reply: Message, random: Random) -> Message | None:
        reply.content[name] = record()
        return reply

    return answer


def _error(reply: Message, random: Random) -> Message | None:
    return Message(Error(random.randrange(10), "\x1b[31mred\nlines" * 50), reply_to=reply)


def _nothing_in_it(reply: Message, random: Random) -> Message | None:
    reply.content = RecordDict()
    return reply


BEHAVIOURS: dict[str, Behaviour] = {
    **{name: _frames(name) for name in FRAMES if name not in ("another client", "an earlier round")},
    "vanishes": lambda reply, random: None,
    "no records": _nothing_in_it,
    "text for frames": _record("frames", lambda: ConfigRecord({"0": "text"})),
    "numbers for frames": _record("frames", lambda: ConfigRecord({"0": [1, 2, 3]})),
    "metrics for frames": _record("frames", lambda: MetricRecord({"0": 1.0})),
    "infinite loss": _record("observed", lambda: MetricRecord({"loss": float("inf")})),
    "a loss that is none": _record("observed", lambda: MetricRecord({"loss": float("nan")})),
    "strange observations": _record("observed", lambda: MetricRecord({"a b\n": 1.0})),
    "many observations": _record("observed", lambda: MetricRecord({f"x{at}": 1.0 for at in range(1000)})),
    "a memory of the future": _record("reply", lambda: ConfigRecord({"kept": 1000})),
    "a memory of no turn": _record("reply", lambda: ConfigRecord({"kept": -7})),
    "a memory that is text": _record("reply", lambda: ConfigRecord({"kept": "x"})),
    "a cause of its own": _record("reply", lambda: ConfigRecord({"cause": "a\nb", "message": "\x1b[2J"})),
    "a record too many": _record("extra", lambda: ConfigRecord({"a": 1})),
}


class RestlessGrid(FakeGrid):
    """In every turn each unreliable node behaves honestly, sends false data, loses its memory or is absent."""

    def __init__(self, settings: Settings, trial: Trial, restless: dict[int, list[str]]) -> None:
        super().__init__(settings, trial.folder / "nodes")
        self.restless, self.seed = restless, trial.seed
        for client in restless:
            self.answers[client] = lambda order, reply, client=client: self.changed(client, order, reply)

    def random(self, client: int, turn: str) -> Random:
        return Random(f"{self.seed}/{client}/{turn}")

    def push_messages(self, messages: Any) -> list[str]:
        listed = list(messages)
        for message in listed:
            client, turn = message.metadata.dst_node_id - 100, message.metadata.group_id
            if client in self.restless and self.random(client, f"loses {turn}").random() < 0.15:
                for path in self.memory_of(client).rglob("*.safetensors"):
                    path.unlink()
        return super().push_messages(listed)

    def memory_of(self, client: int) -> Any:
        return self.folder / "memory" / str(100 + client)

    def changed(self, client: int, order: Message, reply: Message) -> Message | None:
        random = self.random(client, order.metadata.group_id)
        if random.random() < 0.4:
            return reply
        return BEHAVIOURS[random.choice(self.restless[client])](reply, random)


class Killed(BaseException):
    pass


def flower(trial: Trial) -> Outcome:
    trial.choose_job(workers=1)
    trial.ours += [trial.folder / "nodes"]
    clients = trial.normal.summary["clients"]
    nodes = trial.random.sample(range(clients), trial.random.randint(0, clients // 2))
    restless = {node: trial.random.sample(sorted(BEHAVIOURS), 3) for node in nodes}
    kills = sorted(trial.random.sample(range(3), trial.random.choice((0, 0, 1, 2))))
    trial.say(f"restless {restless}, the server is killed after the rounds {kills}")
    answer = trial.compute(lambda: _served(trial, restless, kills))
    if "line" in answer:
        return Outcome("one line", answer["line"])
    if "ended" in answer:
        raise FailedError(f"the server ends: {answer['ended']}")
    summary = json.loads((trial.path / "summary.json").read_text())
    if not summary["failures"]:
        outcome = trial.compare(trial.path)
        if outcome.name != EQUAL:
            raise FailedError(f"no failure, and {outcome}")
        return outcome
    if not set(summary["failures"]) & {"value", "payload", "step"} and not restless_may_be_taken(restless):
        trial.same_as_failed(summary, trial.path)
    return Outcome("counted", str(summary["failures"]))


def restless_may_be_taken(restless: dict[int, list[str]]) -> bool:
    """Whether a false upload may be within bounds, so that it is accepted and changes the model."""
    within = {"rubbish in a good frame", "a bit", "cut payload", "longer", "no examples", "a memory of the future"}
    return any(within & set(names) for names in restless.values())


def _served(trial: Trial, restless: dict[int, list[str]], kills: list[int]) -> dict[str, Any]:
    for name in ("_run_id", "_task_id", "_node_id"):
        setattr(TaskIdentity, name, 1)  # Flower sets these before it starts an app.
    settings = resolve({}, trial.run_words(engine="flower", deadline=DEADLINE)[1:])
    problem = build_problem(settings.run)
    waiting = list(kills)

    def stop(progress: Any) -> None:
        if waiting and progress.round_number == waiting[0]:
            waiting.pop(0)
            raise Killed

    while True:
        folder, resume = continue_or_create(settings, "")
        grid: Any = RestlessGrid(settings, trial, restless)
        try:
            serve(grid, problem, folder, resume=resume, report=stop)
            return {}
        except Killed:
            continue
        except QuorumError as error:
            return {"line": str(error)}
        except SubbitError as error:
            return {"ended": f"{type(error).__name__}: {error}"}

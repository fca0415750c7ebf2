"""The compressed downlink of any Flower app: what nodes hold, how they catch up, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs import make_codec
from subbit.flower import compress
from subbit.flower.compression import Compression
from subbit.flower.held_arrays import HELD, HELD_AT
from subbit.flower.reply_decoder import ReplyDecoder
from subbit.flower.sent_changes import MOST_FRAMES, SentChanges
from tests.flower.loopback import NODES, PLAIN, Loopback, as_arrays, as_record, client_app, run, start_arrays
from tests.flower.rounds import Fate, Rounds

pytestmark = pytest.mark.usefixtures("a_run")

STEPS = st.lists(
    st.tuples(
        st.booleans(),  # Training, or evaluation.
        st.booleans(),  # The arrays have changed.
        st.dictionaries(st.sampled_from(NODES), st.sampled_from(Fate), min_size=1),
    ),
    max_size=12,
)


@given(STEPS, st.sampled_from(["eden", "topk", "dense", "qsgd"]))
@settings(max_examples=40, deadline=None)
def test_every_node_that_answered_holds_what_the_server_says_bit_for_bit(steps: Any, codec: str) -> None:
    rounds = Rounds(compress(codec=codec))
    for number, (trains, moved, fates) in enumerate(steps, start=1):
        rounds.step(number, trains, moved, fates)
        rounds.check_nodes()


@given(STEPS)
@settings(max_examples=25, deadline=None)
def test_a_node_that_lost_its_memory_fails_once_at_most(steps: Any) -> None:
    rounds = Rounds(compress())
    for number, (trains, moved, fates) in enumerate(steps, start=1):
        rounds.step(number, trains, moved, fates)
    everyone = dict.fromkeys(NODES, Fate.ANSWERS)
    rounds.step(98, True, False, everyone)
    answered = rounds.step(99, True, True, everyone)
    assert answered == set(NODES)
    assert set(rounds.decoder.refused) <= {"memory"}


def test_what_a_change_leaves_out_is_part_of_the_next() -> None:
    """One bit a value leaves 1 - 2 / pi = 0.36 of the squared error: it falls by that every time, if it is fed back."""
    rounds = Rounds(compress(codec="eden", bits=1))
    rounds.step(1, True, True, dict.fromkeys(NODES, Fate.ANSWERS))
    rounds.arrays["layer.weight"] = rounds.arrays["layer.weight"] + np.float32(0.1)
    errors = []
    for number in range(2, 8):
        # A running variance that changes makes a new version of the same weights.
        rounds.arrays["bn.running_var"] = np.full(30, number, np.float32)
        rounds.step(number, True, False, dict.fromkeys(NODES, Fate.ANSWERS))
        errors.append(np.linalg.norm(rounds.target() - rounds.sent.held))
    shares = np.array(errors[1:]) / errors[:-1]
    assert np.all(shares < 0.7)
    assert np.mean(shares) == pytest.approx(np.sqrt(1 - 2 / np.pi), abs=0.05)


def test_what_is_left_out_is_not_lost_by_averaging() -> None:
    """Clients that change nothing: the average is the global arrays, though nodes hold something else."""
    rounds = Rounds(compress(first=make_codec("eden", bits=1)))
    rounds.step(1, True, True, dict.fromkeys(NODES, Fate.ANSWERS))
    assert not np.allclose(rounds.seen[7]["layer.weight"], rounds.arrays["layer.weight"], atol=0.1)
    for reply in rounds.opened:
        found = as_arrays(reply.content["arrays"])
        assert all(np.array_equal(found[name], rounds.arrays[name]) for name in rounds.arrays)


def test_evaluation_and_the_next_round_share_a_broadcast() -> None:
    """Both send the same arrays: a node that has them is sent no frame again."""
    made, seen = compress(), []

    def watch(message: Message, context: Any, call_next: Any) -> Message:
        record = message.content["subbit"]
        brings_arrays = bool(message.content["arrays"])
        seen.append((message.metadata.message_type, record["version"], "frames" in record, brings_arrays))
        return call_next(message, context)

    _, result = run(made.strategy(FedAvg()), Loopback(client_app(watch, made)), rounds=3)
    assert seen[::3] == [
        ("train", 1, True, True),
        ("evaluate", 2, True, True),
        ("train", 2, False, False),
        ("evaluate", 3, True, True),
        ("train", 3, False, False),
        ("evaluate", 4, True, True),
    ]
    assert result.evaluate_metrics_clientapp[1]["subbit-down-bytes-after"] > 0
    assert result.train_metrics_clientapp[2]["subbit-down-bytes-after"] < 3 * 250


@pytest.mark.parametrize("kind", [FedAvg, FedAdam])
def test_metrics_count_both_ways(kind: Any) -> None:
    made, sent = compress(codec="eden", bits=1), []

    def watch(message: Message, context: Any, call_next: Any) -> Message:
        sent.append(len(message.content["subbit"]["frames"][0]))
        return call_next(message, context)

    _, result = run(made.strategy(kind(fraction_evaluate=0)), Loopback(client_app(watch, made)), rounds=4)
    first = result.train_metrics_clientapp[1]
    assert first["subbit-down-bytes-before"] == 3 * as_record(start_arrays()).count_bytes()
    for number, metrics in result.train_metrics_clientapp.items():
        frames = sum(sent[3 * (number - 1) : 3 * number])
        assert frames < metrics["subbit-down-bytes-after"] < frames + 3 * (3 * 250 + 400)
    assert sent[0] == 1715 + 4 * 7 + 40  # 8 bits a value, a step for each 256 values, a header.
    assert 215 + 40 < sent[3] <= 215 + 40 + 40


def test_buffers_and_numbers_of_other_kinds_arrive_exactly() -> None:
    rounds = Rounds(compress())
    for number in range(1, 4):
        rounds.arrays["bn.num_batches_tracked"] = np.array(2**60 + number, np.int64)
        rounds.step(number, True, True, dict.fromkeys(NODES, Fate.ANSWERS))
        for node in NODES:
            for name in PLAIN:
                assert np.array_equal(rounds.seen[node][name], rounds.arrays[name])
                assert rounds.seen[node][name].dtype == rounds.arrays[name].dtype
            assert rounds.seen[node]["layer.half"].dtype == np.float16
            assert rounds.seen[node]["double"].dtype == np.float64


def test_arrays_beside_the_frame_are_sent_when_they_change() -> None:
    rounds = Rounds(compress())
    rounds.step(1, True, True, {NODES[0]: Fate.ANSWERS})
    rounds.step(2, True, True, {NODES[0]: Fate.ANSWERS})
    order, plain = rounds.sent.order(1)
    assert set(plain) == {"bn.running_var", "bn.num_batches_tracked"}
    assert order.form == b""


def test_frames_are_kept_while_they_are_shorter_than_a_snapshot() -> None:
    rounds = Rounds(compress(codec="eden", bits=1))
    rounds.step(1, True, True, {NODES[0]: Fate.ANSWERS})
    for number in range(2, 40):
        rounds.step(number, True, True, {NODES[1]: Fate.ANSWERS})
    kept = rounds.sent._frames
    assert 4 * 1715 * 0.9 < sum(map(len, kept)) <= 4 * 1715 + 40
    assert len(kept) <= MOST_FRAMES
    order, _ = rounds.sent.order(rounds.sent.confirmed[NODES[0]])
    assert len(order.snapshot) == 4 * 1715 + 40  # It missed too many.
    assert rounds.step(40, True, True, dict.fromkeys(NODES, Fate.ANSWERS)) == set(NODES)
    rounds.check_nodes()


def test_a_newcomer_is_sent_the_shorter_of_frames_and_snapshot() -> None:
    rounds = Rounds(compress(codec="eden", bits=1))
    for number in range(1, 6):
        rounds.step(number, True, True, {NODES[0]: Fate.ANSWERS})
    order, plain = rounds.sent.order(0)
    assert (order.base, len(order.frames), order.snapshot) == (0, 5, b"")
    assert order.form
    assert set(plain) == set(PLAIN)


def test_another_model_starts_afresh() -> None:
    rounds = Rounds(compress())
    everyone = dict.fromkeys(NODES, Fate.ANSWERS)
    rounds.step(1, True, True, everyone)
    lineage = rounds.sent._stream.lineage  # type: ignore[union-attr]
    rounds.arrays = {"other": np.ones((3, 4), np.float32)}
    assert rounds.step(2, True, True, everyone) == set(NODES)
    assert rounds.sent.version == 1
    assert rounds.sent._stream.lineage != lineage  # type: ignore[union-attr]
    rounds.check_nodes()


@pytest.mark.parametrize(
    "arrays",
    [
        {"trees": np.arange(5, dtype=np.uint8)},
        {"lora_A": np.ones((2, 8), np.float32), "lora_B": np.zeros((8, 2), np.float32)},
        {"empty": np.zeros((0, 3), np.float32), "one": np.array(2.5, np.float32)},
    ],
)
def test_records_of_any_kind_go_both_ways(arrays: dict[str, Any]) -> None:
    rounds = Rounds(compress())
    rounds.arrays = arrays
    for number in range(1, 4):
        assert rounds.step(number, True, True, dict.fromkeys(NODES, Fate.ANSWERS)) == set(NODES)
        rounds.check_nodes()


def test_arrays_that_are_not_finite_are_sent_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    sent = ReplyDecoder(compress())
    record = as_record({"weight": np.array([1, np.nan], np.float32)})
    messages = sent.ask(1, [Message(RecordDict({"arrays": record}), 7, "train")])
    assert set(messages[0].content["arrays"]) == {"weight"}
    assert "lineage" not in messages[0].content["subbit"]


def test_a_strategy_that_sends_different_arrays_compresses_the_first() -> None:
    made = compress()
    decoder, grid = ReplyDecoder(made), Loopback(client_app(made))
    config = ConfigRecord({"server-round": 1})
    records = [as_record({"weight": np.full(50, number, np.float32)}) for number in range(3)]
    messages = [
        Message(RecordDict({"arrays": record, "config": config}), node, "train")
        for record, node in zip(records, NODES, strict=True)
    ]
    opened, metrics = decoder.open(grid.send_and_receive(decoder.ask(1, messages)))
    assert metrics["subbit-bad-frames"] == 0
    means = [float(np.mean(reply.content["arrays"]["weight"].numpy())) for reply in opened]
    assert means == pytest.approx([0, 1, 2], abs=0.1)


def test_old_behaviour_is_an_option() -> None:
    made: Compression = compress(down=None)
    grid = Loopback(client_app(made))
    run(made.strategy(FedAvg()), grid)
    assert all(HELD not in context.state and HELD_AT not in context.state for context in grid.contexts.values())


def test_the_server_keeps_one_copy_however_many_nodes() -> None:
    sent = SentChanges(compress().down)  # type: ignore[arg-type]
    sent.confirmed.update(dict.fromkeys(range(1000), 0))
    arrays = [
        value for value in vars(sent).values() if isinstance(value, np.ndarray | Array | ArrayRecord | MetricRecord)
    ]
    assert len(arrays) == 1

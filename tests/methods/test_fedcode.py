"""FedCode's schedule, what clients hold, and codebook rounds, against hand-derived numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.core.errors import ConfigError, FrameError, PayloadError
from subbit.methods.fedcode import padded, snap
from subbit.methods.method import Turn
from subbit.runtime.folder import RunFolder
from subbit.runtime.messages import decode_parts, encode_parts
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import down
from subbit.wire.frame import HEADER_BYTES
from subbit.wire.ledger import Ledger
from tests.problems import conv_net, digits_problem, settings


def fedcode(**values: Any) -> Any:
    return Workplace(digits_problem(), settings(method="fedcode", **values)).method("main")


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_the_schedule_of_the_published_code() -> None:
    """Rounds from 1. Server: the codebook alone if round > 2 and round % 5 != 0. Clients: weights if round < 2 or
    round % 2 == 0."""
    method = fedcode()
    rounds = range(1, 13)
    assert [number for number in rounds if method.parameters.whole_broadcast(number - 1)] == [1, 2, 5, 10]
    assert [number for number in rounds if method.parameters.whole_uploads(number - 1)] == [1, 2, 4, 6, 8, 10, 12]


def test_snapping_by_hand() -> None:
    """Values 0, 1, 4: the borders are 0.5 and 2.5, and a border belongs to the upper value."""
    found = snap(vector(-3, 0.4, 0.5, 2.4, 2.5, 9), vector(4, 0, 1, 1))
    assert found.tolist() == [0, 0, 1, 1, 4, 4]


@given(st.lists(st.floats(-10, 10, width=32), min_size=1), st.lists(st.floats(-10, 10, width=32), min_size=1))
def test_snapping_finds_a_nearest_value_and_changes_no_value_of_the_codebook(
    weights: list[float], values: list[float]
) -> None:
    found = snap(vector(*weights), vector(*values)).astype(np.float64)
    nearest = np.abs(np.subtract.outer(np.float64(weights), np.float64(values))).min(axis=1)
    assert np.allclose(np.abs(found - np.float64(weights)), nearest, atol=1e-12)
    assert np.array_equal(snap(vector(*values), vector(*values)), vector(*values))


def test_a_codebook_round_on_the_server_by_hand() -> None:
    """Codebooks (0, 1) and (2) of two clients: weights snap to 0, 1 or 2."""
    method = fedcode()
    state = method.start()
    state["weights"] = np.resize(vector(-0.2, 0.6, 1.4, 7), method.size)
    accumulator = method.accumulator()
    for values in (vector(0, 1), vector(2)):
        payloads = {"weights": None, "codebook": padded(values, 64)}
        method.accumulate(accumulator, None, payloads, 5, 2, 0)
    assert method.step(state, accumulator, 2)["weights"][:4].tolist() == [0, 1, 1, 2]


def test_a_whole_round_is_the_mean_by_examples_and_nobody_means_no_change() -> None:
    method = fedcode()
    accumulator, ones = method.accumulator(), np.ones(method.size, dtype=np.float32)
    method.accumulate(accumulator, None, {"weights": ones, "codebook": None}, 1, 0, 0)
    method.accumulate(accumulator, None, {"weights": -ones, "codebook": None}, 3, 0, 1)
    # One who sends a codebook in a round of weights, both or nothing is refused.
    for weights, codebook in ((None, padded(vector(9), 64)), (ones, padded(vector(9), 64)), (None, None)):
        with pytest.raises(PayloadError, match="round 0 asks for weights"):
            method.accumulate(accumulator, None, {"weights": weights, "codebook": codebook}, 3, 0, 2)
    assert np.allclose(method.step(method.start(), accumulator, 0)["weights"], -0.5)
    assert np.array_equal(method.step(method.start(), method.accumulator(), 0)["weights"], method.start()["weights"])


@pytest.mark.parametrize("batchnorm", ["frozen", "average"])
def test_what_is_held_survives_a_snapshot_bit_by_bit(batchnorm: str) -> None:
    """Four clusters, after a whole broadcast and two codebooks."""
    problem = digits_problem(conv_net())
    method = Workplace(problem, settings(method="fedcode", clusters=4, batchnorm=batchnorm)).method("main")
    held, state = method.changes.first(), method.start()
    for number in range(4):
        frames = encode_parts(method, "main", down(number), method.changes.change(state, held, number), held)
        payloads, _ = decode_parts(method, "main", down(number), frames, held)
        held = method.changes.follow(held, payloads, number)
        state["weights"] = state["weights"] * np.float32(1.1)
    assert len(np.unique(held["weights"])) <= 4
    assert set(np.unique(held["weights"])) <= set(held["codebook"])
    frames = encode_parts(method, "snapshot", down(3), method.changes.snapshot(held), None)
    payloads, _ = decode_parts(method, "snapshot", down(3), frames, None)
    restored = method.changes.restore(payloads)
    assert {name: value.tobytes() for name, value in restored.items()} == {
        name: value.tobytes() for name, value in held.items()
    }


def test_where_a_codebook_round_starts() -> None:
    """Round index 6 (the seventh): the last whole broadcast was that of index 4. Who trained in 4 or 5 goes on with its
    own weights, snapped; who did not, or never did, starts from the common ones. A whole broadcast always wins."""
    method = fedcode()
    view = {"weights": np.zeros(method.size, np.float32), "codebook": padded(vector(0, 1), 64)}
    own = np.full(method.size, 0.7, dtype=np.float32)
    for trained_in, round_number, expected in ((4, 6, 1), (5, 6, 1), (3, 6, 0), (None, 6, 0), (5, 9, 0), (3, 4, 0)):
        memory = {} if trained_in is None else {"weights": own, "round": np.array([trained_in])}
        assert (method._start(view, Turn(round_number, 0, memory)) == expected).all(), (trained_in, round_number)


def test_a_broadcast_without_what_its_round_is_about_is_refused() -> None:
    method = fedcode()
    with pytest.raises(FrameError, match="round 2 has no codebook"):
        method.changes.follow(
            method.changes.first(), {"weights": np.zeros(method.size, np.float32), "codebook": None}, 2
        )
    with pytest.raises(FrameError, match="round 0 has no weights"):
        method.changes.follow(method.changes.first(), {"weights": None, "codebook": np.zeros(64, np.float32)}, 0)


def test_a_codebook_is_256_bytes(tmp_path: Path) -> None:
    chosen = settings(method="fedcode", rounds=4, folder=str(tmp_path), name="run")
    run_job(digits_problem(), chosen, RunFolder.create(chosen, ""))
    entries = Ledger.read_csv(tmp_path / "run" / "ledger.csv").entries
    sizes = {(entry.direction, entry.round_number): (entry.part, entry.frame_bytes) for entry in entries}
    codebook = ("codebook", 64 * 4 + HEADER_BYTES)
    assert sizes["down", 2] == sizes["down", 3] == sizes["up", 2] == codebook
    for where in (("down", 0), ("down", 1), ("up", 0), ("up", 1), ("up", 3)):
        part, size = sizes[where]
        assert part == "weights"
        assert 1210 * 5 / 8 < size < 1210 * 6 / 8 + 64 * 4 + 1 + HEADER_BYTES + 300  # At most 6 bits, some overhead.


def test_clients_who_come_late() -> None:
    """One client of three in a round: most first turns fall into codebook rounds, and nobody fails."""
    chosen = settings(method="fedcode", rounds=8, participation=0.34)
    assert run_job(digits_problem(), chosen).summary["failed_clients"] == 0


def test_refusals() -> None:
    for values in ({"clusters": 0}, {"clusters": 257}, {"down_every": 0}, {"up_every": 0}):
        with pytest.raises(ConfigError):
            settings(method="fedcode", **values)

"""The fuzzer itself: it finds what it is there to find, and the committed corpus stays harmless."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest
from cases import Subject

from subbit.codecs import Bits, Codec, Kind, Shared

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))
import fuzz_frames


def test_corpus_and_a_few_fresh_inputs(tmp_path: Path) -> None:
    campaign = fuzz_frames.Campaign(fuzz_frames.make_receivers(), Random(1), findings=tmp_path / "found.txt")
    campaign.replay()
    for _ in range(3000):
        campaign.step()
    assert campaign.failures == []
    at_the_frame = sum(count for cause, count in campaign.outcomes.items() if cause != "decoded" and "/" not in cause)
    assert 0 < at_the_frame < campaign.outcomes.total() / 4, "most inputs must reach a decoder"


@dataclass(frozen=True)
class Careless(Codec[Bits]):
    """Believes a length that it reads."""

    name = "careless"
    number = 250
    kind = Kind.BITS
    exact = True
    summary = ""

    def encode(self, payload: Bits, shared: Shared) -> bytes:
        return bytes([payload.size]) + payload.tobytes()

    def decode(self, data: bytes, shared: Shared) -> Bits:
        return np.frombuffer(data, np.uint8, count=data[0], offset=1)


def test_a_careless_decoder_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ValueError where the count exceeds the bytes, IndexError without any bytes, else a payload of the wrong shape."""
    corpus = tmp_path / "corpus.txt"
    monkeypatch.setattr(fuzz_frames, "CORPUS", corpus)
    monkeypatch.setattr(fuzz_frames, "subjects", lambda: [Subject("careless", Careless())])
    campaign = fuzz_frames.Campaign(fuzz_frames.make_receivers(), Random(0), findings=corpus)
    campaign.replay()
    assert campaign.failures == []
    for _ in range(500):
        campaign.step()
    assert {failure.split(":")[1].split()[0] for failure in campaign.failures} == {
        "ValueError",
        "IndexError",
        "expected",
    }
    assert len(corpus.read_text().splitlines()) == len(campaign.failures)
    again = fuzz_frames.Campaign(fuzz_frames.make_receivers(), Random(0), findings=corpus)
    again.replay()
    assert len(again.failures) == len(campaign.failures), "the corpus replays what failed"

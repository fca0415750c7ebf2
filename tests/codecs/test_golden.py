"""One committed frame per codec and layout: encoding gives the same bytes, decoding the same payload, everywhere.

A change of a golden frame breaks every receiver of the last release: it is a new `subbit.wire.frame.VERSION`. A new
codec, or a new entry of `cases.VARIANTS`, gets its frame from `python tests/codecs/make_golden.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import Subject, digest, subjects
from decode_golden import decoded_digest
from make_golden import DIGESTS, GOLDEN, golden_frame

every_codec = pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.label) for subject in subjects()])


def committed(subject: Subject) -> dict[str, str]:
    digests: dict[str, dict[str, str]] = json.loads(DIGESTS.read_text())
    if subject.label not in digests or not (GOLDEN / f"{subject.label}.bin").exists():
        pytest.fail(f"{subject.label} has no golden frame; run: python tests/codecs/make_golden.py")
    return digests[subject.label]


@every_codec
def test_golden_frame(subject: Subject) -> None:
    expected = committed(subject)
    frame = (GOLDEN / f"{subject.label}.bin").read_bytes()
    assert digest(frame) == expected["frame"], "the committed file is damaged"
    assert golden_frame(subject) == frame, "the same payload gives other bytes than in the last release"
    assert decoded_digest(subject) == expected["payload"], (
        "the same bytes give another payload than in the last release"
    )


def test_no_golden_frame_is_left_over() -> None:
    """A codec that went leaves frames that nobody can read any more: numbers are never reused, nor are their frames."""
    labels = {subject.label for subject in subjects()}
    assert {path.stem for path in GOLDEN.glob("*.bin")} <= labels
    assert set(json.loads(DIGESTS.read_text())) <= labels


@pytest.mark.parametrize(
    "setting",
    [{"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_NUM_THREADS": "3"}],
    ids=lambda setting: "{}={}".format(*next(iter(setting.items()))),
)
def test_another_process_decodes_the_same_payloads(setting: dict[str, str]) -> None:
    """Without compiled code, and with another number of threads than here, which is the number of cores."""
    found = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "decode_golden.py")],
        env={**os.environ, **setting},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert found.returncode == 0, found.stderr
    expected = json.loads(DIGESTS.read_text())
    assert json.loads(found.stdout) == {label: digests["payload"] for label, digests in expected.items()}

"""Feed damaged frames to every decoder: python fuzz/fuzz_frames.py [--seconds 60] [--seed 0] [--inputs N] [--keep]

Structured random fuzzing. Seeds are frames of every registered codec and `corpus.txt`. Each input is decoded with what
its receiver expects, by compiled code with bounds checks. The only allowed outcomes are `FrameError` and a well-formed
payload, within the declared memory. An input that a codec rejects in a new way (with a new message, ignoring numbers)
becomes a seed itself: coverage tools of Python cannot see numba's machine code, and the message tells how far the input
got.

Inputs that fail are added to `corpus.txt` (one line each: codec, frame in hexadecimal), to be committed with the fix.
`--keep` also adds one for every way in which a codec rejected an input. The order of the inputs depends only on the
seed and the corpus.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "codecs")]

from cases import Subject, address_for, complaint, payloads, shared_for, subjects  # noqa: E402
from mutate import mutate  # noqa: E402

from subbit.codecs import Shared  # noqa: E402
from subbit.core.errors import FrameError, PayloadError  # noqa: E402
from subbit.wire import Address, pack_frame, unpack_frame  # noqa: E402

CORPUS = HERE / "corpus.txt"
SIZE = 200
HANG_SECONDS = 30
SEEDS_PER_CODEC = 200


@dataclass
class Receiver:
    """One codec with what its receiver expects, and the frames from which its inputs are derived."""

    subject: Subject
    address: Address
    shared: Shared
    seeds: list[bytes] = field(default_factory=list)


def make_receivers() -> list[Receiver]:
    receivers = []
    for subject in subjects():
        kind = subject.codec.kind
        receiver = Receiver(subject, address_for(subject.codec, SIZE), shared_for(kind, SIZE))
        for payload in payloads(kind, receiver.shared).values():
            try:
                data = subject.codec.encode(payload, receiver.shared)
            except PayloadError:
                continue
            receiver.seeds.append(pack_frame(data, receiver.address))
        receivers.append(receiver)
    return receivers


def outcome(receiver: Receiver, frame: bytes) -> tuple[str, str]:
    """("decoded", "") for a payload, (cause, "") if the frame was rejected, ("payload/cause", message) if the codec
    rejected it, ("FAILURE", what) for anything else.
    """
    codec, shared = receiver.subject.codec, receiver.shared
    try:
        data, _ = unpack_frame(frame, receiver.address)
        payload = codec.decode(data, shared)
    except PayloadError as error:
        return f"payload/{error.cause}", str(error)
    except FrameError as error:
        return error.cause, ""
    except Exception as error:
        return "FAILURE", f"{type(error).__name__}: {error}"
    wrong = complaint(codec.kind, payload, shared)
    return ("decoded", "") if wrong is None else ("FAILURE", wrong)


@dataclass
class Campaign:
    receivers: list[Receiver]
    random: Random
    keep: bool = False
    findings: Path = CORPUS
    outcomes: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[str, str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def try_input(self, receiver: Receiver, frame: bytes) -> None:
        label = receiver.subject.label
        cause, message = outcome(receiver, frame)
        self.outcomes[cause] += 1
        way = cause + re.sub(r"\S*\d\S*", "#", message)
        if (label, way) in self.seen:
            return
        new_to_all = all(way != known for _, known in self.seen)
        self.seen.add((label, way))
        if message and len(receiver.seeds) < SEEDS_PER_CODEC:
            receiver.seeds.append(frame)
        if cause == "FAILURE":
            self.failures.append(f"{label}: {message}")
        if cause == "FAILURE" or (self.keep and message and new_to_all):
            self.write(label, frame)

    def write(self, label: str, frame: bytes) -> None:
        with self.findings.open("a", encoding="ascii") as file:
            file.write(f"{label} {frame.hex()}\n")

    def replay(self) -> None:
        """Decode the seeds and the corpus unchanged. Also compiles every decoder before memory is measured."""
        by_label = {receiver.subject.label: receiver for receiver in self.receivers}
        for receiver in self.receivers:
            for frame in tuple(receiver.seeds):
                self.try_input(receiver, frame)
        for line in CORPUS.read_text(encoding="ascii").splitlines() if CORPUS.exists() else ():
            label, frame_in_hexadecimal = line.split()
            if label in by_label:
                self.try_input(by_label[label], bytes.fromhex(frame_in_hexadecimal))

    def step(self) -> None:
        receiver = self.random.choice(self.receivers)
        lender = receiver if self.random.random() < 0.7 else self.random.choice(self.receivers)
        frame, other = self.random.choice(receiver.seeds), self.random.choice(lender.seeds)
        self.try_input(receiver, mutate(frame, other, self.random))


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def limit_memory(megabytes: int) -> None:
    """Limit the address space; more raises MemoryError. So arrays that are allocated but never touched count too."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    space = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="stop after this many, for runs that compare")
    parser.add_argument("--memory", type=int, default=256, help="megabytes that all decoding together may add")
    parser.add_argument(
        "--keep", action="store_true", help="write inputs that no codec refused in this way to the corpus"
    )
    options = parser.parse_args()

    campaign = Campaign(make_receivers(), Random(options.seed), options.keep)
    campaign.replay()
    limit_memory(options.memory)
    before, end, tried = peak_megabytes(), time.monotonic() + options.seconds, 0
    while tried < options.inputs and time.monotonic() < end:
        # Python cannot interrupt a hang in compiled code: this ends the process with a traceback.
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        for _ in range(min(500, options.inputs - tried)):
            campaign.step()
            tried += 1
    faulthandler.cancel_dump_traceback_later()

    added = peak_megabytes() - before
    print(f"{tried} inputs tried on {len(campaign.receivers)} decoders with seed {options.seed}")
    print(", ".join(f"{cause} {count}" for cause, count in campaign.outcomes.most_common()))
    print(f"{len(campaign.seen)} different outcomes; memory grew by {added:.0f} MB, {options.memory} declared")
    if added > options.memory:
        campaign.failures.append(f"memory grew by {added:.0f} MB, more than the declared {options.memory}")
    for failure in campaign.failures:
        print(f"FAILURE {failure}", file=sys.stderr)
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    if "NUMBA_BOUNDSCHECK" not in os.environ:
        # numba reads its settings on import and caches code with and without checks under one name: use a separate
        # cache.
        settings = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(HERE / "__pycache__" / "boundscheck")}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})
    sys.exit(main())

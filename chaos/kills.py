"""Processes that are killed, interrupted, or run concurrently."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from chaos.processes import Process, Work
from chaos.trial import COUNTED, EQUAL, LINE, FailedError, Outcome, Trial, clear_line
from chaos.trips import at_byte, at_call, at_change

REAL = 0.1  # Share of the processes that start like a user's, without forking.


def moment(trial: Trial, sent: int, *, group: bool = False) -> tuple[str, Work | None]:
    """When to send the signal: a description, and a hook for the child. Without a hook the parent sends it."""
    random, normal = trial.random, trial.normal
    kinds = ["change", "change", "time"]
    if trial.workers == 1:
        kinds += ["evaluation_turn", "client_turn"]
    if sent == signal.SIGKILL:
        kinds.append("byte")
    kind = random.choice(kinds)
    if kind == "change":
        number = random.randint(1, normal.changes)
        return f"at change {number} of {normal.changes}", at_change(number, sent, group=group)
    if kind == "byte":
        size = random.randint(0, max(normal.sizes.values()))
        return f"at byte {size} of a file", at_byte(size, kill=True)
    if kind == "time":
        return "at some time", None
    number, after = random.randint(1, 8), random.random() < 0.5
    return f"{'after' if after else 'before'} {kind} {number}", at_call(kind, number, sent, after=after)


def disturbed(trial: Trial, words: list[str], sent: int, *, group: bool = False) -> Process:
    """Start the process and send it the signal at some moment."""
    real = trial.random.random() < REAL
    when, before = moment(trial, sent, group=group)
    if real or before is None:
        seconds = trial.random.random() * trial.normal.seconds * (3 if real or trial.workers > 1 else 1.2)
        process = trial.start(words, real=real)
        trial.say(f"{words[0]}: signal {sent} after {seconds:.2f} s{', from its imports on' if real else ''}")
        end = time.monotonic() + seconds
        process.until(lambda: time.monotonic() > end, seconds + 1)
        process.signal(sent, group=group)
        return process
    trial.say(f"{words[0]}: signal {sent} {when}")
    return trial.start(words, before)


def kill(trial: Trial) -> Outcome:
    """SIGKILL, once or several times in a row; then the run must finish."""
    trial.choose_job()
    words = trial.run_words()
    for _ in range(trial.random.choice((1, 1, 2, 4))):
        ended = trial.end(disturbed(trial, words, signal.SIGKILL), may_die=True)
        if ended.status > 0:
            trial.say(clear_line(ended))
        words = ["resume", "runs/job"] if (trial.path / "checkpoint").exists() else words
    return trial.finished(trial.carry_on())


def interrupt(trial: Trial) -> Outcome:
    """Ctrl-C, in a terminal or to the process alone, possibly twice."""
    trial.choose_job()
    group = trial.random.random() < 0.7
    process = disturbed(trial, trial.run_words(), signal.SIGINT, group=group)
    again = trial.random.random() < 0.3
    if again:
        pause = time.monotonic() + trial.random.random() * 0.3
        process.until(lambda: time.monotonic() > pause, 1)
        process.signal(signal.SIGINT, group=group)
        trial.say("and again")
    ended = trial.end(process, may_die=True)
    # A second one cannot be handled while Python shuts down.
    if ended.status not in ((0, 130, -signal.SIGINT) if again else (0, 130)):
        raise FailedError(f"status {ended.status} after Ctrl-C:\n{ended.err[-2000:]}")
    if ended.status == 130:
        trial.say(clear_line(ended))
        if left := list(trial.path.rglob("*.tmp")):
            raise FailedError(f"Ctrl-C left {left}")
    return trial.finished(trial.carry_on())


def worker(trial: Trial) -> Outcome:
    """SIGKILL of worker processes: while they start, between two rounds, while they train or evaluate."""
    trial.choose_job(workers=2)
    process = trial.start(trial.run_words())
    events = trial.path / "events.jsonl"
    for _ in range(trial.random.choice((1, 2, 3))):
        if trial.random.random() < 0.25:
            process.until(lambda: len(process.workers()) > 0, 120)
            pause = trial.random.random() * 6
        else:
            lines = trial.random.randint(0, 4)
            process.until(lambda lines=lines: events.exists() and events.read_bytes().count(b"\n") >= lines, 240)
            pause = trial.random.random() * 0.3
        end = time.monotonic() + pause
        process.until(lambda end=end: time.monotonic() > end, pause + 1)
        if process.running() and (workers := process.workers()):
            trial.say(f"a worker is killed {pause:.2f} s later")
            with contextlib.suppress(ProcessLookupError):
                os.kill(trial.random.choice(workers), signal.SIGKILL)
    ended = trial.end(process)
    if ended.status:
        trial.say(clear_line(ended))
        ended = trial.carry_on()
    return trial.finished(ended)


def twice(trial: Trial) -> Outcome:
    """Two or three processes in the same folder at once. One does the work, the others report which one."""
    trial.choose_job(workers=1)
    how = trial.random.choice(("same name", "no name", "resumes", "run and resume"))
    trial.say(how)
    number = trial.random.choice((2, 3))
    if how == "no name":
        trial.ours += [trial.runs / f"{trial.normal.summary['method']}-{at}" for at in range(1, number + 1)]
        trial.before = trial.look()
        both = [trial.start(trial.run_words(name="auto")) for _ in range(number)]
        endings = [trial.end(process) for process in both]
        outcomes = [trial.judge(ended, path) for ended, path in zip(endings, trial.ours[-number:], strict=True)]
        return Outcome(EQUAL) if all(each.name == EQUAL for each in outcomes) else outcomes[0]
    words = [trial.run_words()] * number
    if how != "same name":
        trial.end(trial.start(trial.run_words(), at_call("client_turn", 9, signal.SIGKILL)), may_die=True)
        words = [["resume", "runs/job"]] * number
    if how == "run and resume":
        words[0] = trial.run_words()
    processes = []
    for each in words:
        processes.append(trial.start(each))
        time.sleep(trial.random.choice((0, 0, 0.2)))
    endings = [trial.end(process) for process in processes]
    lines = [clear_line(ended) for ended in endings if ended.status]
    trial.say(f"{len(lines)} refused: {lines}")
    if all("no checkpoint yet" in line for line in lines) and len(lines) == len(words):
        return trial.finished(trial.carry_on())
    if len(lines) == len(words):
        raise FailedError(f"nobody did the work: {lines}")
    unexpected = [line for line in lines if "in use by" not in line and not _told(line)]
    if unexpected:
        raise FailedError(f"refused for another reason: {unexpected}")
    outcome = trial.judge(next(ended for ended in endings if not ended.status))
    return outcome if outcome.name in (EQUAL, COUNTED) else Outcome(LINE, str(lines))


def _told(line: str) -> bool:
    """A concurrent run of the same name has moved the folder aside."""
    return "has no checkpoint yet" in line or "no config.toml" in line

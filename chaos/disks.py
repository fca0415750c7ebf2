"""Full disks and unusable folders."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos import canary
from chaos.trial import LINE, FailedError, Outcome, Skipped, Trial, clear_line
from chaos.trips import at_byte

ROOM = "64m"


@contextlib.contextmanager
def mounted(trial: Trial, options: str) -> Iterator[None]:
    """A separate file system for the runs, if mounting is permitted."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", str(trial.runs)], capture_output=True)
    if done.returncode:
        raise Skipped("mounting is not permitted")
    try:
        yield
    finally:
        kept = trial.folder / "was-mounted"
        subprocess.run(["cp", "-a", str(trial.runs), str(kept)], check=False, capture_output=True)
        subprocess.run(["umount", "-l", str(trial.runs)], check=True)


def remount(trial: Trial, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(trial.runs)], check=True, capture_output=True)


def disk(trial: Trial) -> Outcome:
    """The disk becomes full in the middle of a run; later there is space again."""
    trial.choose_job()
    trial.ours.append(trial.folder / "was-mounted")
    how = trial.random.choice(("bytes", "bytes", "files", "limit"))
    total = sum(4096 * (1 + size // 4096) for size in trial.normal.sizes.values())
    if how == "limit":
        size = trial.random.randint(0, max(trial.normal.sizes.values()))
        trial.say(f"no file beyond {size} bytes")
        ended = trial.subbit(trial.run_words(), at_byte(size, kill=False))
        _no_halves(trial)
        if ended.status:
            trial.say(clear_line(ended))
        return trial.finished(trial.carry_on() if ended.status else ended)
    canaries = 16 * 4096
    size = canaries + trial.random.randint(1, total + total // 4)
    files = trial.random.randint(20, 24 + len(trial.normal.sizes))
    with mounted(trial, f"size={size if how == 'bytes' else ROOM},nr_inodes={files if how == 'files' else 9999}"):
        trial.say(f"room for {size} bytes" if how == "bytes" else f"room for {files} files")
        canary.plant(trial.runs)
        trial.before = trial.look()
        ended = trial.subbit(trial.run_words())
        _no_halves(trial)
        if ended.status:
            trial.say(clear_line(ended))
            if trial.random.random() < 0.3:
                again = trial.subbit(["resume", "runs/job"])
                trial.say(f"resumed without room: {clear_line(again) if again.status else 'it ends'}")
            remount(trial, f"size={ROOM},nr_inodes=9999")
            ended = trial.carry_on()
        outcome = trial.finished(ended)
        trial.look_around()
    trial.before = trial.look()
    return outcome


def _no_halves(trial: Trial) -> None:
    if left := list(trial.path.rglob("*.tmp")):
        raise FailedError(f"a run that ended by itself left {left}")


def _file_in_the_way(trial: Trial) -> dict[str, str]:
    return {"folder": "notes.txt"}


def _below_a_file(trial: Trial) -> dict[str, str]:
    return {"folder": "notes.txt/deep"}


def _long(trial: Trial) -> dict[str, str]:
    return {"name": "x" * 300}


def _long_path(trial: Trial) -> dict[str, str]:
    return {"folder": "/".join(["y" * 200] * 30)}


def _photos(trial: Trial) -> dict[str, str]:
    return {"name": trial.random.choice(("photos", "models", "notes.txt", "link", ".ssh", "half.tmp"))}


def _lock_is_a_folder(trial: Trial) -> dict[str, str]:
    (trial.runs / ".lock").mkdir()
    return {}


def _process_table(trial: Trial) -> dict[str, str]:
    return {"folder": trial.random.choice(("/proc/nowhere", "/dev/null", "/sys/nothing", "/dev/null/runs"))}


def _name_with_a_way_out(trial: Trial) -> dict[str, str]:
    return {"name": trial.random.choice(("../photos", "..", ".", "a/b", "", "-rf", "a\nb", "\x1b[31m"))}


def _loop(trial: Trial) -> dict[str, str]:
    (trial.work / "loop").symlink_to("loop")
    return {"folder": "loop"}


def _dangling(trial: Trial) -> dict[str, str]:
    (trial.work / "dangling").symlink_to("nowhere/at/all")
    return {"folder": "dangling"}


def _job_is_a_dangling_link(trial: Trial) -> dict[str, str]:
    (trial.runs / "dangles").symlink_to("nowhere")
    return {"name": "dangles"}


def _odd_but_possible(trial: Trial) -> dict[str, str]:
    name = trial.random.choice(("with space", "[red]markup", "ünï", "-", "new\nline", "q'uo\"te", "%s{0}"))
    trial.ours.append(trial.work / name)
    trial.path = trial.work / name / "job"
    return {"folder": name}


IMPOSSIBLE: tuple[Callable[[Trial], dict[str, str]], ...] = (
    _file_in_the_way, _below_a_file, _long, _long_path, _photos, _lock_is_a_folder, _process_table,
    _name_with_a_way_out, _loop, _dangling, _job_is_a_dangling_link, _odd_but_possible,
)  # fmt: skip


def folder(trial: Trial) -> Outcome:
    """A folder that is read-only, already exists, is invalid or has an odd name; an output that cannot be written."""
    trial.choose_job("subbit", "topk", workers=1)
    how = trial.random.choice((*IMPOSSIBLE, read_only, another_user, full_output))
    trial.say(how.__name__.strip("_"))
    if how in (read_only, another_user, full_output):
        return how(trial)  # type: ignore[return-value]
    changes = how(trial)  # type: ignore[assignment]
    trial.say(str(changes))
    trial.before = trial.look()
    ended = trial.subbit(trial.run_words(**changes))  # type: ignore[arg-type]
    if ended.status:
        return Outcome(LINE, clear_line(ended))
    return trial.judge(ended)


def read_only(trial: Trial) -> Outcome:
    """A killed run on a file system that is now read-only and later writable again."""
    from chaos.trips import at_call

    trial.ours.append(trial.folder / "was-mounted")
    with mounted(trial, f"size={ROOM}"):
        canary.plant(trial.runs)
        trial.before = trial.look()
        started = trial.random.random() < 0.7
        if started:
            trial.end(trial.start(trial.run_words(), at_call("client_turn", 5, 9)), may_die=True)
        remount(trial, "ro")
        inside = canary.look(trial.runs, ())
        for words in (trial.run_words(), ["resume", "runs/job"]):
            trial.say(clear_line(trial.subbit(words)))
        if canary.differences(inside, canary.look(trial.runs, ())):
            raise FailedError("a read-only folder changed")
        remount(trial, "rw")
        outcome = trial.finished(trial.carry_on())
        trial.look_around()
    trial.before = trial.look()
    return outcome


def another_user(trial: Trial) -> Outcome:
    """A user without permissions in the folder."""
    if os.getuid():
        raise Skipped("only root becomes somebody else")

    def become_nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    trial.folder.parent.chmod(0o755)
    ended = trial.subbit(trial.run_words(), become_nobody)
    if not ended.status:
        raise FailedError("it ran where it has no rights")
    return Outcome(LINE, clear_line(ended))


def full_output(trial: Trial) -> Outcome:
    """subbit run > /dev/full, or into a pipe without a reader."""
    kind = trial.random.choice(("full", "pipe"))

    def before() -> None:
        if kind == "full":
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        else:
            read, write = os.pipe()
            os.close(read)
            os.dup2(write, 1)

    ended = trial.subbit(trial.run_words(), before)
    trial.say(f"{kind}: status {ended.status}")
    if ended.status and kind == "full":  # By convention a closed pipe is not reported.
        trial.say(clear_line(ended))
    return trial.finished(trial.carry_on() if ended.status else ended)


def free_of_mounts(scratch: Path) -> None:
    """Unmount what a killed earlier harness has left behind."""
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[1].startswith(f"{scratch}/"):
            subprocess.run(["umount", "-l", line.split()[1]], check=False)

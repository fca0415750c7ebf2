"""The run folder: locked, checked, repaired by going back to the last complete round, and never in anybody's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.problems import digits_problem, mlp, settings

from subbit.config.resolve import Settings
from subbit.core.appended_file import AppendedFile
from subbit.core.errors import RunFolderError
from subbit.core.files import replace_file
from subbit.runtime.check import check_run
from subbit.runtime.folder import RunFolder
from subbit.runtime.run import run_job
from subbit.wire.ledger import Ledger

PARTS = [list(range(start, start + 40)) for start in range(0, 240, 40)]


def chosen(folder: Path, name: str = "a", **values: Any) -> Settings:
    """A method whose clients keep something, two of six in a round."""
    job = {"method": "sparse-masks", "clients": 6, "participation": 0.34, "rounds": 4, **values}
    return settings(**job, folder=str(folder), name=name)


def problem() -> Any:
    import numpy as np

    return digits_problem(mlp(64), [np.array(part) for part in PARTS])


class StopError(Exception):
    pass


def stopped_after(rounds: int, folder: Path) -> Path:
    """A run that ended in its next round."""

    def stop(progress: Any) -> None:
        if progress.round_number + 1 == rounds:
            raise StopError

    made = RunFolder.create(chosen(folder), "")
    with pytest.raises(StopError):
        run_job(problem(), made.settings, made, report=stop)
    return made.path


def resumed(path: Path) -> dict[str, Any]:
    folder = RunFolder.open(path)
    return run_job(problem(), folder.settings, folder, resume=True).summary


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], bytes]:
    """An undisturbed run: its summary and its ledger."""
    folder = RunFolder.create(chosen(tmp_path_factory.mktemp("whole")), "")
    summary = run_job(problem(), folder.settings, folder).summary
    return summary, (folder.path / "ledger.csv").read_bytes()


def same(found: dict[str, Any], path: Path, whole: tuple[dict[str, Any], bytes]) -> None:
    for key in ("model_sha256", "accuracy_by_round", "bytes_by_round", "total_bytes", "failures"):
        assert found[key] == whole[0][key]
    assert (path / "ledger.csv").read_bytes() == whole[1]


# Locks.


def test_a_file_is_on_disk_before_it_has_its_name_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[str, bool]] = []

    def flush(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        flushed.append((Path(name).name, (tmp_path / "file").exists()))

    monkeypatch.setattr(os, "fsync", flush)
    replace_file(tmp_path / "file", b"text")
    assert flushed == [("file.tmp", False), (tmp_path.name, True)]
    flushed.clear()
    replace_file(tmp_path / "file", b"other", durable=False)
    AppendedFile(tmp_path / "lines").append(b"one\n")
    assert [name for name, _ in flushed] == ["lines", "lines"], "when it is made, and when something is appended"


def test_who_names_no_run_is_told_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"it has no config\.toml$"):
        RunFolder.look(tmp_path / "nowhere" / "run")
    for number, name in enumerate(("older", "newer")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
        os.utime(tmp_path / name / "config.toml", (number, number))
    for path in (tmp_path, tmp_path / "run"):
        with pytest.raises(RunFolderError, match=r"newest first: .*newer, .*older$"):
            RunFolder.look(path)


def test_a_folder_in_use_is_left_alone_and_its_holder_named(tmp_path: Path) -> None:
    first = RunFolder.create(chosen(tmp_path), "")
    with pytest.raises(RunFolderError, match=f"in use by process {os.getpid()} on .*give another name="):
        RunFolder.create(chosen(tmp_path), "")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["a"]
    first.release()
    assert RunFolder.create(chosen(tmp_path), "").path == first.path
    assert (tmp_path / "a.1" / "config.toml").is_file()
    assert not (tmp_path / "a.1" / "running.json").exists()


def test_two_resumes_at_once_the_second_says_who_holds_it(tmp_path: Path) -> None:
    path = stopped_after(1, tmp_path)
    first = RunFolder.open(path)
    first.read_state()
    with pytest.raises(RunFolderError, match=f"in use by process {os.getpid()}"):
        RunFolder.open(path).read_state()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    code = f"""
import os
from subbit.runtime.folder import RunFolder
from tests.report.test_folder import chosen
from pathlib import Path
RunFolder.create(chosen(Path({str(tmp_path)!r})), "")
os._exit(9)
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert (tmp_path / "a" / "running.json").is_file()
    RunFolder.create(chosen(tmp_path), "")
    assert (tmp_path / "a.1").is_dir()


def test_names_that_nobody_gave_do_not_collide(tmp_path: Path) -> None:
    made = [RunFolder.create(chosen(tmp_path, "auto"), "") for _ in range(3)]
    assert [folder.path.name for folder in made] == ["sparse-masks-1", "sparse-masks-2", "sparse-masks-3"]
    assert RunFolder.open(made[1].path).settings.run.name == "sparse-masks-2"


def test_what_a_run_left_that_was_killed_before_it_began_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".a.new").mkdir()
    (tmp_path / ".a.new" / "config.toml.tmp").write_text("half")
    RunFolder.create(chosen(tmp_path), "").release()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a"]
    (tmp_path / ".b.new").mkdir()
    (tmp_path / ".b.new" / "job").write_text("mine")
    (tmp_path / ".b.new" / "diary.txt").write_text("precious")
    with pytest.raises(RunFolderError, match="not made by subbit"):
        RunFolder.create(chosen(tmp_path, "b"), "")
    assert (tmp_path / ".b.new" / "job").read_text() == "mine"


@pytest.mark.parametrize("content", ["folder", "config", "file", "link"])
def test_what_is_not_a_run_of_ours_is_not_moved(tmp_path: Path, content: str) -> None:
    target = tmp_path / "a"
    if content == "folder":
        target.mkdir()
        (target / "photo.jpg").write_text("precious")
    elif content == "config":
        target.mkdir()
        (target / "config.toml").write_text("mine = true")
    elif content == "file":
        target.write_text("precious")
    else:
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunFolderError, match="not a run folder: give another name"):
        RunFolder.create(chosen(tmp_path), "")
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != ".lock"] == before


# Damage and repair.


def overwrite(path: Path, place: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] = value
    path.write_bytes(data)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit of the newest state": lambda run: flip(run / "checkpoint/3.safetensors", -5),
    "a bit of the newest manifest": lambda run: flip(run / "checkpoint/3.json", 40),
    "the newest manifest is gone": lambda run: (run / "checkpoint/3.json").unlink(),
    "the newest state is empty": lambda run: (run / "checkpoint/3.safetensors").write_bytes(b""),
    "half a line in the ledger": lambda run: (run / "ledger.csv").open("ab").write(b"main,3,2,up,cha"),
    "half a line in the events": lambda run: (run / "events.jsonl").open("ab").write(b'{"event": "ro'),
    "the last line of the ledger is gone": lambda run: os.truncate(
        run / "ledger.csv", (run / "ledger.csv").stat().st_size - 30
    ),
    "a bit at the end of the events": lambda run: flip(run / "events.jsonl", -20),
    "no text at the end of the events": lambda run: overwrite(run / "events.jsonl", -20, 0xFF),
    "a memory that was cut off": lambda run: os.truncate(max((run / "memory").rglob("3.safetensors")), 100),
    "files of a write that never ended": lambda run: (run / "checkpoint/4.safetensors.tmp").write_bytes(b"half"),
    "a state without a manifest": lambda run: (run / "checkpoint/4.safetensors").write_bytes(b"half"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_to_the_last_round_costs_that_round_alone(
    name: str, tmp_path: Path, whole: tuple[dict[str, Any], bytes]
) -> None:
    path = stopped_after(3, tmp_path)
    DAMAGE[name](path)
    same(resumed(path), path, whole)
    assert not list(path.rglob("*.tmp"))
    assert all(finding.damage is None for finding in check_run(path))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("config.toml is damaged|another config.toml|not what was written", lambda run: flip(run / "config.toml", 9)),
        ("ledger.csv is damaged", lambda run: flip(run / "ledger.csv", 90)),
        ("cannot be read", lambda run: (run / "events.jsonl").unlink()),
        ("3.safetensors is damaged", lambda run: [flip(run / f"checkpoint/{at}.safetensors", -5) for at in (2, 3)]),
        ("no checkpoint yet", lambda run: [path.unlink() for path in (run / "checkpoint").iterdir()]),
    ],
)
def test_damage_that_cannot_be_repaired_is_one_sentence(
    name: str, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    path = stopped_after(3, tmp_path)
    damage(path)
    with pytest.raises(RunFolderError, match=name):
        resumed(path)


def test_a_round_that_was_never_run_is_refused(tmp_path: Path) -> None:
    """A checkpoint with a right checksum and a wrong content: round 99 of 4, or an array that is too short."""
    from subbit.runtime.checkpoint import read_checkpoint, write_checkpoint
    from subbit.runtime.manifest import read_manifest, write_manifest

    path = stopped_after(3, tmp_path)
    text = (path / "config.toml").read_text()
    for change in ("round", "array"):
        state = read_checkpoint(path / "checkpoint/3.safetensors", text)
        if change == "round":
            state.next_round = 99
        else:
            state.method["scores"] = state.method["scores"][:-1]  # type: ignore[index]
        digest = write_checkpoint(path / "checkpoint/3.safetensors", state, text)
        manifest = read_manifest(path / "checkpoint", 3)
        write_manifest(path / "checkpoint", manifest.__class__(**{**vars(manifest), "state": digest}))
        with pytest.raises(RunFolderError, match="does not fit its configuration"):
            resumed(path)


def test_a_state_that_grows_is_resumed(tmp_path: Path) -> None:
    """FedMask's server learns the structure of each client that it meets."""
    job = settings(method="fedmask", rounds=3, folder=str(tmp_path), name="a")
    whole = run_job(digits_problem(), job).summary

    def stop(progress: Any) -> None:
        raise StopError

    folder = RunFolder.create(job, "")
    with pytest.raises(StopError):
        run_job(digits_problem(), job, folder, report=stop)
    found = run_job(digits_problem(), job, RunFolder.open(folder.path), resume=True).summary
    assert found["model_sha256"] == whole["model_sha256"]


def test_the_books_do_not_grow_in_memory(tmp_path: Path) -> None:
    path = stopped_after(2, tmp_path)
    folder = RunFolder.open(path)
    _, ledger, events = folder.read_state()
    assert ledger.entries == ()
    assert ledger.totals == Ledger.read_csv(path / "ledger.csv").totals
    assert [event.event for event in events] == ["before", "round", "round"]
    assert sorted(each.name for each in (path / "checkpoint").iterdir()) == [
        "1.json",
        "1.safetensors",
        "2.json",
        "2.safetensors",
    ]


def test_memories_are_files_and_the_checkpoint_has_only_their_turns(tmp_path: Path) -> None:
    path = stopped_after(3, tmp_path)
    state = RunFolder.open(path).last_state()
    assert state.kept
    for client, turn in state.kept.items():
        assert (path / "memory" / str(client) / f"{turn}.safetensors").is_file()
    size = len(state.method["scores"])  # type: ignore[arg-type]
    assert (path / "checkpoint/3.safetensors").stat().st_size < 12 * size


def test_check_names_what_is_damaged(tmp_path: Path) -> None:
    path = stopped_after(3, tmp_path)
    resumed(path)
    findings = check_run(path)
    assert len(findings) > 10
    assert all(finding.damage is None for finding in findings)
    memory = next((path / "memory").rglob("*.safetensors"))
    for damaged in ("ledger.csv", "events.jsonl", "summary.json", "split.txt", str(memory.relative_to(path))):
        data = (path / damaged).read_bytes()
        flip(path / damaged, len(data) // 2)
        named = {finding.what.split(" ")[0] for finding in check_run(path) if finding.damage is not None}
        assert named <= {damaged}
        (path / damaged).write_bytes(data)


def test_check_of_a_run_without_rounds_only_asks_that_it_claims_no_byte(tmp_path: Path) -> None:
    folder = RunFolder.create(chosen(tmp_path, rounds=0, head="keep"), "")
    with pytest.raises(RunFolderError, match="no finished round yet"):
        check_run(folder.path)
    run_job(problem(), folder.settings, folder)
    assert [finding.damage for finding in check_run(folder.path)] == [None]
    summary = folder.path / "summary.json"
    summary.write_text(summary.read_text().replace('"total_bytes": 0', '"total_bytes": 8'))
    (finding,) = check_run(folder.path)
    assert finding.damage is not None
    assert "claims 8 bytes" in finding.damage


def test_a_damaged_memory_is_a_counted_failure(tmp_path: Path) -> None:
    path = stopped_after(3, tmp_path)
    for file in (path / "memory" / "1").iterdir():  # One of the two that take part in the next round.
        flip(file, -1)
    assert resumed(path)["failures"] == {"memory": 1}


def test_a_network_that_cannot_be_evaluated_is_counted(tmp_path: Path) -> None:
    """A client's own network is in its memory. Without it the mean is over the others, and the summary says so."""
    job = settings(method="fedmask", rounds=2, folder=str(tmp_path), name="a")
    folder = RunFolder.create(job, "")
    run_job(digits_problem(), job, folder)
    for file in (folder.path / "memory" / "1").iterdir():
        flip(file, -1)
    found = run_job(digits_problem(), job, RunFolder.open(folder.path), resume=True).summary
    assert found["not_evaluated"] == {"memory": 1}
    assert found["accuracy_by_client"].keys() == {"0", "2"}


def test_a_summary_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    folder = RunFolder.create(chosen(tmp_path), "")
    (folder.path / "summary.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"summary\.json cannot be read"):
        folder.read_summary()


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    path = stopped_after(2, tmp_path)
    lines = (path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["before", "round", "round"]


def test_a_finished_run_whose_process_was_killed_at_its_end_is_tidied(tmp_path: Path) -> None:
    folder = RunFolder.create(chosen(tmp_path), "")
    folder.release()
    (folder.path / "running.json").write_text('{"process": 1}\n')
    RunFolder.look(folder.path).tidy()
    assert not (folder.path / "running.json").exists()
    half = folder.path / "checkpoint" / "4.json.tmp"
    half.parent.mkdir()
    half.write_text("{")
    RunFolder.look(folder.path).tidy()
    assert not half.exists()
    held = RunFolder.create(chosen(tmp_path, "b"), "")
    RunFolder.look(held.path).tidy()
    assert (held.path / "running.json").exists(), "that process runs"
    held.release()

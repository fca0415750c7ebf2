"""Workers come from a nursery: what they inherit, and that nothing is left whoever is killed."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from subbit.runtime import nursery, pool
from subbit.runtime.engines import LARGE_BLOCK
from subbit.runtime.pool import Pool
from subbit.runtime.run import Progress, run_job
from tests.problems import digits_problem, settings
from tests.processes import alive, below, wait_until

pytestmark = pytest.mark.skipif(not nursery.POSSIBLE, reason="there are no nurseries on this system")
ROOT = Path(__file__).parents[2]
SAME = ("model_sha256", "accuracy_by_round", "total_bytes", "failures")


def note_start(modules: list[str], number: int) -> None:
    """Called in a new worker."""
    global found
    found = {name: name in sys.modules for name in modules}


found: dict[str, bool] = {}


def look(_: Any) -> dict[str, Any]:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "tasks": len(os.listdir("/proc/self/task")),
        "torch at the start": found,
        "interrupts": signal.SIGINT not in blocked,
        "handler": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "draws": (random.random(), float(np.random.rand()), float(torch.rand(1))),  # noqa: NPY002
        "cuda": torch.cuda.is_initialized(),
        "sum": float(torch.ones(LARGE_BLOCK // 16, dtype=torch.uint8).sum()),
    }


def first(made: Pool, order: Any = None) -> Any:
    return next(iter(made.answers(look, [order], tries=1)))[1]


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid))


class Shared:
    """What can only be unpickled where torch is imported."""

    def __init__(self, count: int) -> None:
        self.tensors = [torch.full((3,), float(number)) for number in range(count)]


def sums(number: int) -> float:
    return float(sum(tensor.sum() for tensor in kept.tensors)) + number


def keep(shared: Shared, number: int) -> None:
    global kept
    kept = shared


kept: Shared


def test_workers_are_like_new_processes() -> None:
    made = Pool(2, note_start, (["torch"],))
    try:
        one, two = (answer for _, answer in sorted(made.answers(look, [None, None], tries=1), key=lambda each: each[0]))
        assert one["parent"] == two["parent"] == made._nursery.pid
        assert one["tasks"] == two["tasks"] == 1
        for key in ("interrupts", "cuda"):
            assert not one[key]
            assert not two[key]
        assert one["handler"]
        assert not set(one["draws"]) & set(two["draws"])
    finally:
        made.close()
    assert not alive(one["pid"])
    assert not alive(one["parent"])


def test_a_worker_that_replaces_another_does_not_import_torch() -> None:
    made = Pool(1, note_start, (["torch", "subbit.runtime.engines"],))
    try:
        before = first(made)
        end(before["pid"])
        started = time.monotonic()
        # The order may still reach the pipe of the one that is ending, so it has a second try.
        after = next(iter(made.answers(look, [None], tries=2)))[1]
        assert time.monotonic() - started < 1
        assert after["pid"] != before["pid"]
        assert after["parent"] == before["parent"]
        assert after["torch at the start"] == {"torch": True, "subbit.runtime.engines": True}
    finally:
        made.close()


def test_without_its_nursery_a_pool_spawns() -> None:
    made = Pool(1, note_start, ([],))
    try:
        before = first(made)
        end(before["parent"])
        wait_until(lambda: not alive(before["pid"]), 5)
        # Its threads may be alive a little longer, and so its end of the pipe.
        after = next(iter(made.answers(look, [None], tries=2)))[1]
        assert after["parent"] == os.getpid()
        assert not after["interrupts"]
    finally:
        made.close()
    assert not alive(after["pid"])


def test_a_nursery_with_threads_forks_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As of a tool that starts one in every process of Python."""
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(nursery, "IMPORTED", "threaded")
    made = Pool(2, note_start, ([],))
    try:
        assert first(made)["parent"] == os.getpid()
    finally:
        made.close()


def test_a_run_whose_nursery_is_killed_gives_the_same() -> None:
    chosen = settings(method="fedavg", workers=2, rounds=3)
    undisturbed = run_job(digits_problem(), chosen).summary

    def kill(progress: Progress) -> None:
        if progress.round_number == 0:
            end(next(each for each in below(os.getpid()) if below(each)))

    disturbed = run_job(digits_problem(), chosen, report=kill).summary
    assert {key: disturbed[key] for key in SAME} == {key: undisturbed[key] for key in SAME}


def test_two_pools_at_once_end_apart() -> None:
    one, two = Pool(1, note_start, ([],)), Pool(1, note_start, ([],))
    try:
        assert first(one)["parent"] != first(two)["parent"]
        one.close()
        assert first(two)["pid"]
    finally:
        one.close()
        two.close()


def test_a_pool_outlives_the_thread_that_made_it() -> None:
    pools: list[Pool] = []
    thread = threading.Thread(target=lambda: pools.append(Pool(2, note_start, ([],))))
    thread.start()
    thread.join()
    try:
        before = first(pools[0])
        time.sleep(1)
        assert first(pools[0])["pid"] == before["pid"]
    finally:
        pools[0].close()


def test_a_worker_may_get_more_descriptors_than_fit_in_a_packet() -> None:
    """Every tensor is one."""
    made = Pool(1, keep, (Shared(nursery.MOST_DESCRIPTORS + 30),))
    try:
        expected = 3.0 * sum(range(nursery.MOST_DESCRIPTORS + 30)) + 1
        assert list(made.answers(sums, [1], tries=1)) == [(0, expected)]
        assert first(made)["parent"] == made._nursery.pid
    finally:
        made.close()


def test_what_workers_used_is_counted() -> None:
    """By whoever waits for the server: `subbit bench engine` measures with that."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    made = Pool(1, note_start, ([],))
    try:
        spent = next(iter(made.answers(burn, [1.0], tries=1)))[1]
        imports = int(Path(f"/proc/{made._nursery.pid}/stat").read_text().rpartition(")")[2].split()[11])
    finally:
        made.close()
    counted = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert counted - imports / os.sysconf("SC_CLK_TCK") >= spent - 0.1


def burn(seconds: float) -> float:
    while time.process_time() < seconds:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def test_a_pool_that_is_given_up_does_not_wait_for_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As by Ctrl-C."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(nursery, "IMPORTED", "slow")

    def interrupted(_: int) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(nursery, "read_number", interrupted)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Pool(1, note_start, ([],))
    assert time.monotonic() - started < 3


def test_what_cannot_be_pickled_starts_nothing() -> None:
    before = below(os.getpid())
    with pytest.raises((AttributeError, TypeError)):
        Pool(1, note_start, (lambda: None,))
    assert below(os.getpid()) == before


SCRIPT = """
import time
from tests.runtime.test_nursery import note_start, first
from subbit.runtime.pool import Pool

if __name__ == "__main__":
    made = Pool(2, note_start, ([],))
    first(made)
    print("ready", flush=True)
    list(made.answers(time.sleep, [60, 60], tries=1))
"""


@pytest.mark.parametrize("moment", ["the nursery imports", "the workers start", "the workers work"])
def test_nothing_is_left_when_the_server_is_killed(moment: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        if moment == "the workers work":
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        # The tracker of shared resources is a child too. It ends by itself.
        wait_until(lambda: len(below(process.pid)) >= {"the nursery imports": 2, "the workers start": 3}.get(moment, 4))
        left = below(process.pid)
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in left), 5)
    assert not [pid for pid in processes_of(tmp_path) if alive(pid)]


HELD = SCRIPT.replace(
    "    first(made)",
    """    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    first(made)""",
).replace("import time", "import os, time")


def test_workers_end_with_the_server_though_another_process_holds_its_descriptors(tmp_path: Path) -> None:
    """As a process that the server's owner forks."""
    (tmp_path / "script.py").write_text(HELD)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        ours = next(pid for pid in below(process.pid) if below(pid))
        workers = below(ours)
        assert len(workers) == 2
        os.kill(process.pid, signal.SIGKILL)
        try:
            wait_until(lambda: not any(alive(pid) for pid in (ours, *workers)), 5)
        finally:
            for pid in processes_of(tmp_path):
                os.kill(pid, signal.SIGKILL)


def processes_of(folder: Path) -> list[int]:
    """Those that work in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cwd").resolve() == folder.resolve():
                found.append(int(path.name))
        except OSError:
            continue
    return found


FORKED = """
import os, sys
from subbit.runtime import nursery
import subbit.runtime.pool as pool

def told(settings, start=nursery._fork_this_process):
    before = len(os.listdir("/proc/self/task"))
    made = start()
    print("forked", made is not None, before, "torch" in sys.modules, file=sys.stderr)
    return made

nursery._fork_this_process = lambda: told(None)
from subbit.cli.entry import main
sys.argv[0] = "subbit"
main()
"""


def test_a_command_forks_itself_before_it_computes(tmp_path: Path) -> None:
    words = ["run", "method=deltamask", "limit=100", "test_limit=50", "clients=2", "rounds=1"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    shas = []
    for workers in (1, 2):
        command = [sys.executable, "-c", FORKED, *words, f"workers={workers}", f"name=w{workers}", "--json", "-q"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        # Of a process with one thread, so that importing torch has started none.
        assert ("forked True 1 True" in done.stderr) == (workers == 2)
        shas.append(json.loads(done.stdout)["model_sha256"])
    assert shas[0] == shas[1]


def test_a_command_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        before = below(os.getpid())
        with nursery.forked_nursery():
            assert nursery._offered is None
        assert [pid for pid in below(os.getpid()) if pid not in before] == []
    finally:
        ended.set()
        thread.join()


PLUGIN = ["--plugin", str(ROOT / "examples" / "sign_vote.py"), "method=sign-vote"]


def test_a_method_of_a_plugin_is_the_same_with_workers(tmp_path: Path) -> None:
    shas = set()
    for workers in (1, 2):
        words = [
            "model=mlp",
            "head=keep",
            "limit=100",
            "clients=2",
            "rounds=1",
            f"workers={workers}",
            f"name=w{workers}",
        ]
        command = [sys.executable, "-m", "subbit", "run", *PLUGIN, *words, "--json", "-q"]
        printed = subprocess.check_output(command, cwd=tmp_path, text=True)
        shas.add(json.loads(printed)["model_sha256"])
    assert len(shas) == 1


def test_elsewhere_workers_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery, "POSSIBLE", False)
    with nursery.forked_nursery():
        made = pool.Pool(1, note_start, ([],))
    try:
        assert first(made)["parent"] == os.getpid()
    finally:
        made.close()

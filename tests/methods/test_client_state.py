"""Methods whose clients keep something between their turns: defined for who comes late, and resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subbit.report.folder import RunFolder
from subbit.runtime.run import Progress, run_job
from tests.problems import digits_problem, settings

STATEFUL: dict[str, dict[str, Any]] = {
    "standalone": {},
    "moon": {},
    "topk": {},
    "lg-fedavg": {"global_layers": 1, "codec": "topk"},
    "bnn": {"latent_policy": "keep_local_if_same_sign"},
    "fedcode": {"down_every": 3},
}


class Interrupted(Exception): ...


@pytest.mark.parametrize("method", STATEFUL)
def test_one_client_of_three_a_round_interrupted_and_resumed(method: str, tmp_path: Path) -> None:
    """Six rounds of one client each: first turns come late, and turns of one client are rounds apart. What clients keep
    must be in the checkpoint, or the resumed run is another one."""
    problem = digits_problem()
    values = {"method": method, "participation": 0.34, "rounds": 6, "folder": str(tmp_path), **STATEFUL[method]}
    chosen = settings(name="straight", **values)
    straight = run_job(problem, chosen, RunFolder.create(chosen, "")).summary
    assert straight["participants"] == 1
    assert straight["failed_clients"] == 0
    other = settings(name="resumed", **values)
    folder = RunFolder.create(other, "")

    def stop(progress: Progress) -> None:
        if progress.round_number == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        run_job(problem, other, folder, report=stop)
    resumed = run_job(problem, other, RunFolder.open(folder.path), resume=True).summary
    for key in ("model_sha256", "accuracy_by_round", "total_bytes"):
        assert resumed[key] == straight[key]

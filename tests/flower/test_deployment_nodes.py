"""Real deployments in which nodes join that should not, and come back as others. Part of `make e2e`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flower.test_deployment import assert_equal, deploy, say


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_strays_join_a_run(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=False, deadline=300, rounds=8) as deployment:
        deployment.superlink()
        for node in range(2):
            deployment.supernode(node)
        deployment.submit()
        deployment.until(lambda: len(deployment.rounds()) >= 1, "the head is fitted")
        deployment.supernode(1)
        deployment.supernode(0, partitions=5)
        summary = deployment.finish()
        log = deployment.log("run")
    assert "Refused (taken)" in log
    assert "Refused (partition)" in log
    assert "announces partition-id 0 of 5, but the job has clients=2" in log
    assert_equal(tmp_path, summary, deployment, rounds=8)
    say("strays: a taken partition-id and another num-partitions joined, were refused, and changed nothing")


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_node_restarted_without_keys_is_back_in_its_place(tmp_path: Path) -> None:
    with deploy(tmp_path, secure=False, deadline=300, rounds=3) as deployment:
        deployment.superlink()
        deployment.supernode(0)
        victim = deployment.supernode(1)
        deployment.submit()
        deployment.until(lambda: len(deployment.rounds()) == 2, "the first round of the main phase is over")
        deployment.kill(victim)
        deployment.supernode(1)
        summary = deployment.finish()
        identities = {
            line.split("SuperNode ID:")[1] for line in deployment.log("node-1").splitlines() if "SuperNode ID" in line
        }
    assert len(identities) == 2
    assert_equal(tmp_path, summary, deployment, rounds=3)
    say("restarted node: back under a new identity while Flower listed the old one; no round was lost")

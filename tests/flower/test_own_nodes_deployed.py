"""Three real nodes with TLS, each with a folder that only it has, and a server without data. Part of `make e2e`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.local_deployment import LocalDeployment
from PIL import Image

from subbit.data import load_dataset
from subbit.wire.frame import MAGIC
from tests.flower.listener import Listener
from tests.flower.test_deployment import say
from tests.flower.test_own_nodes import JOB, write_images

PIXELS = 64


def secrets(folder: Path) -> list[bytes]:
    """What must not leave a node: every image, as bytes and as floats, and the labels of all its images in order."""
    images = [np.asarray(Image.open(path)) for path in sorted(folder.rglob("*.png"))]
    labels = np.array(["abcdefghij".index(path.parent.name) for path in sorted(folder.rglob("*.png"))])
    floats = [(image.astype(np.float32) / 255)[2:6] for image in images]
    found = [image.tobytes() for image in images] + [image.tobytes() for image in floats]
    return found + [labels.astype(kind).tobytes() for kind in (np.uint8, np.int32, np.int64, np.float32)]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_three_nodes_with_their_own_folders(tmp_path: Path) -> None:
    job = {**JOB, "rounds": 4, "deadline": 300, "method": "fedavg", "codec": "eden", "bits": 1}
    folders = [
        write_images(tmp_path / "north", 0, 2),
        write_images(tmp_path / "south", 1, 2),
        write_images(tmp_path / "east", 0, 2, side=9),
    ]
    job["start_with"] = 1
    with LocalDeployment(tmp_path, job, secure=True) as deployment:
        deployment.superlink()
        deployment.register()
        assert deployment.certificates is not None
        listener = Listener(deployment.certificates, deployment.port)
        address = f"127.0.0.1:{listener.port}"

        def node(number: int) -> None:
            deployment.supernode(
                number, address=address, config=f'data="{folders[number]}" name="{folders[number].name}"'
            )

        node(0)
        node(2)
        deployment.submit()
        deployment.until(lambda: len(deployment.rounds()) >= 1, "the first round is over")
        node(1)
        summary = deployment.finish()
        rounds, log = deployment.rounds(), deployment.log("run")
        listener.close()
    assert rounds[0]["participants"] == [0]
    assert rounds[-1]["participants"] == [0, 1]
    assert "Refused (data)" in log
    assert "found inputs uint8 [1, 9, 9], but this job has uint8 [1, 8, 8]" in log
    assert summary["accuracy"] > summary["accuracy_before"] + 0.3
    assert listener.up.count(MAGIC) >= sum(event["answered"] for event in rounds)  # The frames did pass here.
    kept = bytes(listener.up) + b"".join(
        path.read_bytes()
        for path in (*deployment.results.rglob("*"), *tmp_path.glob("superlink.db*"))
        if path.is_file()
    )
    for folder in folders:
        for secret in secrets(folder):
            assert secret not in kept
    say(
        f"own data: 3 nodes with TLS, one joined in round {len([r for r in rounds if r['participants'] == [0]])}, one "
        f"refused; accuracy {summary['accuracy_before']:.2f} to {summary['accuracy']:.2f}; no image and no labels in "
        f"{len(kept) / 1e6:.1f} MB of payloads and server's files"
    )


def test_the_listener_would_see_them(tmp_path: Path) -> None:
    """What is searched for is in the images as they are read."""
    folder = write_images(tmp_path / "north", 0, 20)
    digits = load_dataset("digits").train.tensor[0].numpy().tobytes()
    assert digits in secrets(folder)
    assert len(digits) == PIXELS

"""Memory that a network takes on a device: `python -m subbit.export.peak model.onnx inputs.npy`.

A process of its own, which has loaded onnxruntime and nothing else, reads the model and runs it once. Printed is by how
many bytes that raised the most memory the process ever had.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from subbit.export.onnx_session import OnnxModel


def status_bytes(field: str) -> int:
    """Of this process, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def main(model: Path, inputs: Path) -> None:
    import onnxruntime  # noqa: F401 - before the count begins

    batch = np.load(inputs, allow_pickle=False)
    Path("/proc/self/clear_refs").write_text("5")  # The most so far is what there is now: importing does not count.
    before = status_bytes("VmHWM")
    OnnxModel(model)(batch)
    print(json.dumps({"added": status_bytes("VmHWM") - before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

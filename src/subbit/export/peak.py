"""Memory that a network takes on a device: `python -m subbit.export.peak model.onnx inputs.npy`.

A separate process that has only loaded onnxruntime reads the model and runs it once. Prints the increase of the
process's peak memory in bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from subbit.export.onnx_session import OnnxModel


def status_bytes(field: str) -> int:
    """A field of /proc/self/status on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def main(model: Path, inputs: Path) -> None:
    import onnxruntime  # noqa: F401 - before the count begins

    batch = np.load(inputs, allow_pickle=False)
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak to the current value, so that imports do not count.
    before = status_bytes("VmHWM")
    OnnxModel(model)(batch)
    print(json.dumps({"added": status_bytes("VmHWM") - before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

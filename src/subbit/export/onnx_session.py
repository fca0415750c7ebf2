"""Runs an ONNX file. Does not import torch, which devices do not have."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import ConfigError

INPUTS, OUTPUTS = "inputs", "outputs"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def require_packages() -> None:
    for package in PACKAGES:
        if find_spec(package) is None:
            raise ConfigError(f"{package} is not installed: pip install 'subbit[export]'")


class OnnxModel:
    """The network of a file in onnxruntime, single-threaded."""

    def __init__(self, path: Path) -> None:
        require_packages()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: NDArray[Any] | Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        named = {INPUTS: inputs} if isinstance(inputs, np.ndarray) else dict(inputs)
        outputs: NDArray[np.float32] = self._session.run([OUTPUTS], named)[0]
        return outputs

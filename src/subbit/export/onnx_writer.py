"""Writes a module as an ONNX file with a dynamic batch size."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.export.links import trace
from subbit.export.onnx_session import INPUTS, OUTPUTS, require_packages

OPSET = 20  # The default of torch's exporter; converting to another version has no benefit.


def write_onnx(module: nn.Module, example: Tensor | Mapping[str, Tensor], path: Path) -> None:
    """`example` is a batch of at least two inputs, or several tensors by the names that the file's inputs get; the
    module takes them in this order."""
    require_packages()
    named = {INPUTS: example} if isinstance(example, Tensor) else example
    program = trace(module, *named.values())
    try:
        with _quiet():
            exported = torch.onnx.export(
                program,
                (),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(named),
                output_names=[OUTPUTS],
                verbose=False,
            )
            if exported is None:
                raise ModelError("torch's exporter returned nothing")
            exported.save(str(path), external_data=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise ModelError(f"{type(module).__name__} cannot be written as ONNX: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's progress messages and hints about optional packages."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

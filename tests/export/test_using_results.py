"""docs/using-results.md is run as it stands, and everything on it computes the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from subbit.cli.entry import app

PAGE = (Path(__file__).parents[2] / "docs" / "using-results.md").read_text()
TOLERANCE = 2e-4
"""Logits go up to 25, of sums with terms up to 40: rounding of float32."""


def run_page(text: str) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The page's namespace at its end, and the logits that each of its snippets computes."""
    names: dict[str, Any] = {}
    found = []
    for language, block in re.findall(r"```(bash|python)\n(.*?)```", text, re.DOTALL):
        if language == "bash":
            for line in block.splitlines():
                words = line.split()
                assert words[0] == "subbit"
                app(words[1:], standalone_mode=False)
            continue
        names.pop("logits", None)
        with torch.no_grad():
            exec(block, names)
        if "logits" in names:
            found.append(torch.as_tensor(names["logits"]))
    return names, found


def test_the_page_runs_and_all_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "onnxscript", "peft"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names, found = run_page(PAGE)
    assert len(found) == 4, "torch, transformers, peft and onnxruntime"
    for logits in found[1:]:
        torch.testing.assert_close(logits, found[0], rtol=1e-5, atol=TOLERANCE)
    rows = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    shares, classes = found[0].softmax(dim=1).max(dim=1)
    assert [row["class"] for row in rows] == classes.tolist()
    np.testing.assert_allclose([row["probability"] for row in rows], shares.numpy(), rtol=1e-5, atol=TOLERANCE)
    one = names["session"].run(["outputs"], {"inputs": names["images"][:1].numpy()})[0]
    np.testing.assert_allclose(one, found[0][:1].numpy(), rtol=1e-5, atol=TOLERANCE)

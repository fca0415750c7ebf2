"""Write the table of docs/export.md from `benchmarks/results/export-*.json`, reports of `subbit export --shrink`.

A test fails if the page is out of date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "export.md"
MARKERS = re.compile(r"(<!-- generated: export -->\n).*?(<!-- /generated -->)", re.DOTALL)
ROWS = {
    "parameters": ("parameters", 1, "{:,.0f}"),
    "safetensors_bytes": ("`model.safetensors`, kB", 1e-3, "{:,.0f}"),
    "onnx_bytes": ("`model.onnx`, kB", 1e-3, "{:,.0f}"),
    "onnxruntime_seconds_batch_1": ("onnxruntime, one input, ms", 1e3, "{:.3f}"),
    "onnxruntime_seconds_batch_64": ("onnxruntime, 64 inputs, ms", 1e3, "{:.3f}"),
    "torch_seconds_batch_1": ("torch, one input, ms", 1e3, "{:.3f}"),
    "torch_seconds_batch_64": ("torch, 64 inputs, ms", 1e3, "{:.3f}"),
    "onnxruntime_peak_bytes": ("memory in onnxruntime, MB", 1e-6, "{:.1f}"),
}


def render(report: dict[str, Any]) -> str:
    difference = max(report["difference_torch"], report["difference_onnxruntime"])
    lines = [
        f"`{report['run']}`, client {report['client']}, after {report['rounds']} rounds: accuracy on its own "
        f"{report['checked_inputs']} test inputs {report['accuracy']:.3f}; outputs differ by at most {difference:.1e}.",
        "",
        "| | with its zeros | shrunk | ratio |",
        "|---|---|---|---|",
    ]
    for quantity, (words, factor, form) in ROWS.items():
        dense, shrunk = (factor * report["measured"][quantity][which] for which in ("dense", "shrunk"))
        lines.append(f"| {words} | {form.format(dense)} | {form.format(shrunk)} | {dense / shrunk:.2f} |")
    return "\n".join(lines) + "\n"


def rendered_page(text: str) -> str:
    reports = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("export-*.json"))]
    tables = "\n".join(render(report) for report in reports)
    return MARKERS.sub(lambda match: match.group(1) + tables + match.group(2), text)


if __name__ == "__main__":
    PAGE.write_text(rendered_page(PAGE.read_text()))

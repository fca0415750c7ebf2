"""How to use what a run trained, and how to repeat it."""

from __future__ import annotations

import shlex
from typing import Any

from subbit.core.errors import SubbitError
from subbit.core.plugins import parse_record
from subbit.pages.elements import Html, element, paragraph, preformatted
from subbit.pages.page_tables import table
from subbit.pages.read_run import RunData


def using(run: RunData) -> Html | None:
    if not run.rounds or not run.config:
        return None
    if run.folder.is_given():
        return element(
            "div",
            paragraph(
                "The module and the data are in the script that called fine_tune. The same call with resume=True "
                "returns the result at once; then:"
            ),
            preformatted('result.module  # the trained network\nresult.save("trained")', "How to use the result"),
        )
    path, plugins = shlex.quote(str(run.folder.path)), _plugins(run)
    client = " --client 0" if "score_by_client" in (run.summary or {}) else ""
    lines = [
        f"subbit predict {path} test{client}{plugins}",
        f"subbit export {path} --module trained{client}{plugins}",
        f"subbit export {path} --onnx trained.onnx{client}{plugins}",
    ]
    if (run.layers or {}).get("kind") == "mask":
        lines.append(f"subbit export {path} --mask{plugins}")
    if _tuning(run.config) == "lora":
        lines.append(f"subbit export {path} --adapter{plugins}")
    told = "Predictions on the run's test set; the network as a folder for torch or transformers, and for onnxruntime."
    if client:
        told += " With a method that gives every client a network of its own, --client says whose; else leave it out."
    return element("div", paragraph(told), preformatted("\n".join(lines), "Commands that use the network"))


def _tuning(config: Any) -> object:
    """The tuning of fedpeft, wherever in the tables of the configuration it is."""
    if not isinstance(config, dict):
        return None
    return config.get("tuning") or next(filter(None, map(_tuning, config.values())), None)


def repeating(run: RunData) -> Html | None:
    if not run.config:
        return None
    parts: list[Html] = []
    if run.folder.is_given():
        parts.append(paragraph("The script that called fine_tune repeats this run, with these settings:"))
    else:
        source, again = shlex.quote(str(run.folder.path / "config.toml")), shlex.quote(f"name={run.name}-again")
        parts.append(paragraph("The configuration is complete. This gives the same run again, under another name:"))
        parts.append(preformatted(f"subbit run {source} {again}{_plugins(run)}", "Command that repeats the run"))
    parts.append(element("details", element("summary", "config.toml"), preformatted(run.config_text, "Configuration")))
    versions = (run.summary or {}).get("versions")
    if isinstance(versions, dict):
        rows = [(name, str(version)) for name, version in versions.items()]
        rows += [("trained network, SHA-256", str((run.summary or {}).get("model_sha256", "")))]
        found = table(["what", "version"], rows, "Versions", text=(0, 1))
        parts.append(element("details", element("summary", "Versions and checksum"), found))
    return element("div", *parts)


def _plugins(run: RunData) -> str:
    recorded = run.config.get("plugins")
    try:
        known = [] if not recorded else parse_record(str(recorded))
    except SubbitError:
        return ""
    return "".join(f" --plugin {shlex.quote(name)}.py" for name, _ in known)

"""`subbit export`: exports the trained network or mask of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from subbit.cli.consoles import console, note
from subbit.cli.options import PluginFiles, RunPath
from subbit.core.errors import ConfigError


def export(
    folder: RunPath,
    mask: Annotated[bool, typer.Option("--mask", help="Write which weights of the base are kept, as one file")] = False,
    shrink: Annotated[bool, typer.Option("--shrink", help="Write a smaller network without its empty parts")] = False,
    adapter: Annotated[bool, typer.Option("--adapter", help="Write the LoRA of fedpeft for plain peft")] = False,
    module: Annotated[Path | None, typer.Option(help="Write the whole network to this new folder")] = None,
    merge: Annotated[bool, typer.Option("--merge/--no-merge", help="LoRA in the weights, or beside them")] = True,
    onnx: Annotated[Path | None, typer.Option(help="Write the whole network to this new ONNX file")] = None,
    client: Annotated[int | None, typer.Option(help="This client's own network (personal methods)")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: inside the run folder")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
    plugin: PluginFiles = None,
) -> None:
    """Export the trained network, mask or adapter of a run.

    [bold]subbit export runs/demo --mask[/bold]   a small file for subbit.load(base, mask)
    [bold]subbit export runs/fedmask --client 3 --shrink[/bold]   safetensors and ONNX for a device
    [bold]subbit export runs/lora --adapter[/bold]   a folder for PeftModel.from_pretrained, and the head
    [bold]subbit export runs/demo --module digits-model[/bold]   for transformers or torch, see docs/using-results.md
    [bold]subbit export runs/demo --onnx digits.onnx[/bold]   for onnxruntime
    """
    from subbit.runtime.folder import RunFolder

    if mask + shrink + adapter + (module is not None) + (onnx is not None) != 1:
        raise ConfigError("what to export: give --module, --onnx, --mask, --shrink or --adapter, one of them")
    if module is None and not merge:
        raise ConfigError("--no-merge goes with --module")
    if out is not None and (module is not None or onnx is not None):
        raise ConfigError("--out: --module and --onnx name the place themselves")
    RunFolder.look(folder).refuse_given()
    note(f"{folder}: loading PyTorch")
    if module is not None:
        _export_module(folder, client, module, merge, as_json)
        return
    if onnx is not None:
        _export_onnx(folder, client, onnx, as_json)
        return
    suffix = "" if client is None else f"-client-{client}"
    if adapter:
        _export_adapter(folder, client, out or folder / "adapter", as_json)
    elif mask:
        _export_mask(folder, client, out or folder / f"mask{suffix}.safetensors", as_json)
    else:
        _export_device(folder, client, out or folder / f"device{suffix}", as_json)


def _export_mask(folder: Path, client: int | None, path: Path, as_json: bool) -> None:
    from subbit.core.files import replace_file
    from subbit.export.mask_file import mask_of_run
    from subbit.export.runs import open_run

    trained = open_run(folder, client)
    file = mask_of_run(trained)
    data = file.to_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
    numbers = {
        "file": str(path),
        "bytes": len(data),
        "base": file.description.model,
        "weights": trained.flat.template.size,
        "mask_bytes": len(file.payload),
        "other_values": sum(value.size for value in file.values.values()),
    }
    if as_json:
        print(json.dumps(numbers, indent=2))
        return
    console.print(
        f"{path}: {len(data):,} bytes, of which {len(file.payload):,} say which of {numbers['weights']:,} weights of "
        f"{numbers['base']} are kept; {numbers['other_values']:,} other values",
        highlight=False,
        soft_wrap=True,
    )


def _export_module(folder: Path, client: int | None, path: Path, merge: bool, as_json: bool) -> None:
    from subbit.export.module_folder import refuse_taken, save_module
    from subbit.export.runs import open_run

    refuse_taken(path)
    saved = save_module(open_run(folder, client, primary=True).as_network(), path, merge=merge)
    if as_json:
        print(
            json.dumps({"folder": str(path), "kind": saved.kind, "loads": saved.loads, "files": saved.files}, indent=2)
        )
        return
    listed = ", ".join(f"{name} ({size:,} bytes)" for name, size in saved.files.items())
    console.print(f"{path}/: {listed}\nload: {saved.loads}", highlight=False, soft_wrap=True, markup=False)


def _export_onnx(folder: Path, client: int | None, path: Path, as_json: bool) -> None:
    from subbit.export.onnx_file import export_onnx, refuse_file
    from subbit.export.runs import open_run

    refuse_file(path)
    written = export_onnx(open_run(folder, client, primary=True).as_network(), path)
    if as_json:
        print(json.dumps({"file": str(path), **written}, indent=2))
        return
    inputs = ", ".join(f"{name} {form}" for name, form in written["inputs"].items())
    console.print(
        f"{path}: {written['bytes']:,} bytes, inputs {inputs}; outputs of {written['checked_inputs']} inputs differ by "
        f"at most {written['difference']:.1e}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _export_adapter(folder: Path, client: int | None, path: Path, as_json: bool) -> None:
    from subbit.export.runs import open_run
    from subbit.peft.lora import save_adapter

    save_adapter(open_run(folder, client).workplace.module, path)
    files = {file.name: file.stat().st_size for file in sorted(path.iterdir())}
    if as_json:
        print(json.dumps({"folder": str(path), "files": files}, indent=2))
        return
    listed = ", ".join(f"{name} ({size:,} bytes)" for name, size in files.items())
    console.print(f"{path}/: {listed}", highlight=False, soft_wrap=True)


def _export_device(folder: Path, client: int | None, path: Path, as_json: bool) -> None:
    from subbit.export.runs import open_run
    from subbit.export.write import export_device

    report = export_device(open_run(folder, client), path)
    if as_json:
        print(json.dumps(report, indent=2))
        return
    console.print(device_table(report))
    for layer, (before, after) in report["widths"].items():
        console.print(f"{layer}: {before} outputs, {after} left", highlight=False)
    for layer, (before, after) in report["inputs"].items():
        console.print(f"{layer}: {before} inputs, {after} read", highlight=False)
    for layer, reason in report["left"].items():
        console.print(f"{layer}: {reason}", highlight=False)
    difference = max(report["difference_torch"], report["difference_onnxruntime"])
    console.print(
        f"{path}/: outputs of {report['checked_inputs']:,} test inputs differ by at most {difference:.1e}",
        highlight=False,
        soft_wrap=True,
    )


def device_table(report: dict[str, Any]) -> Table:
    table = Table(title=f"{report['run']}, {report['network']} network: with its zeros and without, one thread")
    for heading in ("", "dense", "shrunk", "dense / shrunk"):
        table.add_column(heading, justify="left" if not heading else "right")
    for quantity, values in report["measured"].items():
        words, show = quantity.replace("_", " "), "{:,}"
        if "seconds" in quantity:
            words, show = words.replace("seconds", "ms"), "{:.3f}"
            values = {name: 1e3 * value for name, value in values.items()}
        ratio = values["dense"] / max(values["shrunk"], 1e-12)
        table.add_row(words, show.format(values["dense"]), show.format(values["shrunk"]), f"{ratio:.2f}")
    return table

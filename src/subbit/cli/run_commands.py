"""`subbit run` and `subbit resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subbit.cli.consoles import note, print_json, say
from subbit.cli.options import AsJson, JobWords, PluginFiles, Quiet, RunPath
from subbit.cli.report_command import NoReport, report_at_end
from subbit.cli.running import announce, file_and_words, run_told, workers_of
from subbit.cli.summary_lines import print_next, print_summary, result_line
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with
from subbit.core.garbage import uncollected


def run(
    words: JobWords = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    plugin: PluginFiles = None,
) -> None:
    """Run one federated job.

    [bold]subbit run[/bold]   DeltaMask on the bundled transformer and digits, every key at its default
    [bold]subbit run experiments/demo.toml rounds=5 workers=2[/bold]
    [bold]subbit run method=fedavg select=head dataset=fashion-mnist[/bold]
    [bold]subbit run --plugin examples/sign_vote.py method=sign-vote[/bold]
    [bold]subbit run rounds=3 --json[/bold]   the summary on stdout; with --quiet nothing else
    """
    from subbit.config.resolve import resolve

    values, given = file_and_words(words)
    if not quiet:
        announce(values, given)
    with Teller(quiet=quiet) as teller:
        busy_with("loading PyTorch")
        with uncollected():
            settings = resolve(values, given)
        with workers_of(settings, teller):
            found = run_told(settings, teller, split=not quiet and not as_json)
    print_result(*found, quiet=quiet, as_json=as_json, no_report=no_report)


def resume(
    folder: RunPath,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    plugin: PluginFiles = None,
) -> None:
    """Resume an interrupted run after its last finished round. The result equals that of an uninterrupted run.

    A run with plugins needs the same files again: code is only run if you name it, never because it is in a folder.

    [bold]subbit resume runs/demo[/bold]
    """
    from subbit.core.plugins import loaded_plugins
    from subbit.runtime.folder import RunFolder

    looked = RunFolder.look(folder)
    if not quiet and not looked.is_finished():
        note(f"{folder}: loading PyTorch")
    with Teller(quiet=quiet) as teller:
        busy_with("loading PyTorch")
        with uncollected():
            opened = RunFolder.open(folder)
            settings = opened.settings
        if not opened.is_finished():
            opened.refuse_given()
            for each in loaded_plugins():
                if f"{each.name}@" in (settings.run.plugins or "") and not quiet and not as_json:
                    say(f"runs the code of {each.path}, {each}")
            with workers_of(settings, teller):
                found = run_told(settings, teller, split=not quiet and not as_json, resume=folder)
        else:
            if not quiet and not as_json:
                say(f"{folder} is finished: there is nothing to go on with")
            opened.tidy()
            found, no_report = (opened.read_summary(), folder), True
    print_result(*found, quiet=quiet, as_json=as_json, no_report=no_report)


def print_result(summary: dict[str, Any], folder: Path, *, quiet: bool, as_json: bool, no_report: bool) -> None:
    if quiet or as_json:
        report_at_end(folder, no_report, quiet=True)
    if as_json:
        print_json(summary)
    elif quiet:
        say(result_line(summary, folder))
    else:
        print_summary(summary, folder)
        report_at_end(folder, no_report)
        print_next(summary, folder)

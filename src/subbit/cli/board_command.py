"""`subbit board`: a local page that lists runs and follows those in progress."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from subbit.core.errors import ConfigError, RunFolderError

NEEDED = ("starlette", "uvicorn")


def board(
    folder: Annotated[Path | None, typer.Argument(help="Folder of the runs; default: runs")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; default: 8642, or the next that is free")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser")] = False,
) -> None:
    """Show runs on a local page, follow those in progress, compare those you tick. Reads only.

    The page is for this machine alone (127.0.0.1). Ctrl-C ends it.

    [bold]subbit board[/bold]
    [bold]subbit board experiments/runs --port 9000 --open[/bold]
    """
    if any(find_spec(name) is None for name in NEEDED):
        raise ConfigError('the board needs starlette and uvicorn: pip install "subbit[board]"')
    from subbit.board.serving import HOST, bound_socket, serve_board

    chosen = _folder_of_runs(folder)
    bound = bound_socket(port)
    address = f"http://{HOST}:{bound.getsockname()[1]}/"
    with suppress(KeyboardInterrupt):  # The usual end.
        print(f"{address}   runs of {chosen}, until Ctrl-C", flush=True)
        if open_:
            import webbrowser

            webbrowser.open(address)
        serve_board(chosen, bound)


def _folder_of_runs(folder: Path | None) -> Path:
    """The usual folder may not be there yet: runs appear on the page when they start."""
    chosen = Path("runs") if folder is None else folder
    if (chosen / "config.toml").is_file():
        raise RunFolderError(f"{chosen} is a single run: give the folder that it is in, {chosen.resolve().parent}")
    if chosen.exists() and not chosen.is_dir():
        raise RunFolderError(f"{chosen} is no folder: give the folder of your runs, e.g. runs")
    if folder is not None and not chosen.exists():
        raise RunFolderError(f"{chosen} does not exist: give the folder of your runs, e.g. runs")
    return chosen.resolve()

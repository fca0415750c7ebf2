"""A complete Flower app: reference these two in a `pyproject.toml` and start it with `flwr run`.

    [tool.flwr.app.components]
    serverapp = "subbit.flower:server_app"
    clientapp = "subbit.flower:client_app"

    [tool.flwr.app.config]
    method = "deltamask"
    rounds = 10

The keys are those of `subbit run`. `subbit flower app` creates such a folder with all keys, because `flwr run
--run-config` can only override keys that are in the file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.utils import get_flwr_home

from subbit.core.errors import ConfigError
from subbit.flower.announcement import OWN
from subbit.flower.node import make_client_app

if TYPE_CHECKING:
    from subbit.config.resolve import Settings
    from subbit.flower.node_memory import NodeMemory
    from subbit.runtime.own_nodes import Own

MEMORY_KEY, QUOTA_KEY = "memory-folder", "memory-quota-mb"
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    run_server(grid, deployment_settings(context.run_config))


def run_server(grid: Grid, settings: Settings, own: Own | None = None) -> None:
    """Run the job, or go on with it. `own` is what an app brings of its own."""
    from subbit.flower.server import continue_or_create, serve
    from subbit.runtime.own_nodes import NOTHING_OWN, server_problem
    from subbit.runtime.problem import build_problem
    from subbit.runtime.run import Progress
    from subbit.runtime.side_files import Split

    with_own_data = settings.run.dataset == OWN
    problem = server_problem(settings.run, own or NOTHING_OWN) if with_own_data else build_problem(settings.run)
    divided = problem.split_summary()
    split = OWN if with_own_data else divided.as_text()
    folder, resume = continue_or_create(settings, split, Split.of(divided))
    print(f"{'going on with' if resume else 'results go to'} {folder.path.resolve()}", flush=True)

    def report(progress: Progress) -> None:
        score = "" if progress.score is None else f"{progress.score_name} {progress.score:.4f}, "
        print(
            f"round {progress.round_number + 1} of {progress.rounds}: {score}up {progress.uplink_bpp:.4f} bits per "
            f"parameter, {progress.total_bytes / 1e6:.3f} MB so far",
            flush=True,
        )

    summary = serve(grid, problem, folder, resume=resume, report=report, settings=settings).summary
    failed = f", failed turns: {summary['failures']}" if summary["failures"] else ""
    print(f"{summary['score_name']} {summary['score']:.4f}, model {summary['model_sha256'][:16]}{failed}", flush=True)


def deployment_settings(run_config: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> Settings:
    """The resolved settings. Flower flattens tables: `[deltamask.up] kappa` becomes `deltamask.up.kappa`. What is
    `given` counts where the configuration says nothing."""
    from subbit.config.resolve import resolve

    values: dict[str, Any] = copy.deepcopy(dict(given or {}))
    for key, value in run_config.items():
        *tables, name = key.split(".")
        place = values
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return resolve({**values, "engine": "deployment"})


def _configuration(context: Context) -> str:
    from subbit.config.resolve import write_toml

    return write_toml(deployment_settings(context.run_config))


def node_memory(context: Context) -> NodeMemory:
    from subbit.flower.node_memory import DEFAULT_QUOTA_MB, NodeMemory

    folder = Path(str(context.node_config.get(MEMORY_KEY, get_flwr_home()))).expanduser()
    quota = context.node_config.get(QUOTA_KEY, DEFAULT_QUOTA_MB)
    if isinstance(quota, bool | str) or not 0 < quota < math.inf:
        raise ConfigError(f"{QUOTA_KEY}={quota!r} in the node's --node-config: needs megabytes above 0")
    return NodeMemory(folder, quota * 1e6)


client_app = make_client_app(_configuration, node_memory)

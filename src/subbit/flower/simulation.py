"""`subbit run engine=flower`: runs the job on Flower's simulated nodes, in Ray processes on this machine.

One node per client, `workers` processes. Nodes store their memories in the run's folder `memory`, so that a simulation
can be resumed like any run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from subbit.config.resolve import write_toml
from subbit.core.devices import count_devices, find_device
from subbit.core.errors import SubbitError
from subbit.core.plugins import loaded_plugins
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import Problem
from subbit.runtime.run import Progress, Result


def simulate(
    problem: Problem, folder: RunFolder, *, resume: bool = False, report: Callable[[Progress], None] | None = None
) -> Result:
    """Run or resume the job of a run folder. The problem must be the one described by its settings."""
    # Before Flower is imported: disables its telemetry and update check.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    # Ray gives its processes 15 to 30 s to start, which is too short on a busy machine.
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
    os.environ.setdefault("RAY_agent_register_timeout_ms", "180000")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        from flwr.app import Context
        from flwr.serverapp import Grid, ServerApp
        from flwr.simulation import run_simulation
    except ImportError:
        raise SubbitError("engine=flower needs Flower: pip install 'subbit[flower]'") from None

    from subbit.flower.node import make_client_app
    from subbit.flower.node_memory import NodeMemory
    from subbit.flower.server import serve

    plugins = loaded_plugins()
    configuration, memory = write_toml(folder.settings), str((folder.path / "memory").resolve())

    def configured(context: Context) -> str:
        plugins.load()  # In Ray's processes, where this function is executed.
        return configuration

    outcome: list[Result | BaseException] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            outcome.append(serve(grid, problem, folder, resume=resume, report=report))
        except BaseException as error:  # Flower would wrap or hide it; it is raised unchanged below.
            outcome.append(error)

    workers, threads = folder.settings.run.workers, folder.settings.run.threads
    gpus = _share_of_gpus(folder.settings.run.device, workers)
    log = logging.getLogger("flwr")
    log.setLevel(logging.WARNING)
    # Flower recommends its own command instead, which leaves a server running afterwards.
    log.addFilter(lambda record: "`run_simulation` function is deprecated" not in record.getMessage())
    try:
        run_simulation(
            server_app,
            make_client_app(configured, lambda context: NodeMemory(Path(memory))),
            num_supernodes=problem.clients,
            backend_config={
                "init_args": {"num_cpus": workers * threads, "log_to_driver": False},
                "client_resources": {"num_cpus": threads, "num_gpus": gpus},
            },
        )
    except RuntimeError as error:
        # Flower wraps Ray's error; the first cause is the informative one.
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise SubbitError(f"Flower's simulation failed: {cause}") from error
    if not outcome:
        raise SubbitError("Flower's simulation ended before the run did; its log says why")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _share_of_gpus(device: str, workers: int) -> float:
    """GPUs of CUDA for each process. Ray hides them from processes that ask for none."""
    if find_device(device).type != "cuda":
        return 0.0
    return min(1.0, count_devices("cuda") / workers)

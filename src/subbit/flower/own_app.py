"""A Flower app of one's own: a function that builds the module, and one that loads a node's own data.

    from subbit import flower

    app = flower.app(build_module, load_data, method="fedavg", clients=10, classes=3, input="uint8 1x64x64")
    server_app, client_app = app.server_app, app.client_app

`pyproject.toml` names the two objects as components. What it has under `[tool.flwr.app.config]`, and
`flwr run --run-config`, count more than the settings here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from subbit.core.errors import ConfigError
from subbit.flower.deployment import deployment_settings, node_memory, run_server
from subbit.flower.node import make_client_app

if TYPE_CHECKING:
    from torch import nn

    from subbit.runtime.own_nodes import Own

FIXED = {"dataset": "own", "model": "given"}
OBJECTIVE = ("loss", "score", "higher_is_better")
READING = ("collate", "in_memory")


@dataclass(frozen=True)
class App:
    """The two objects that Flower wants."""

    server_app: ServerApp
    client_app: ClientApp


def app(build_module: Callable[[], nn.Module], load_data: Callable[[dict[str, Any]], Any], /, **settings: Any) -> App:
    """A federated fine-tuning app in which every node has its own data.

    `build_module()` returns the module, the same on server and nodes. `load_data(node)` runs on a node alone: `node` is
    its `--node-config` as a dict; it returns a data set of any kind that `subbit.fine_tune` takes, or a pair of them,
    for training and for testing. Without the latter, `test_share` of the examples is held out.

    `settings` are the keys of `subbit run` and of the method, as for `subbit.fine_tune`, with `loss=`, `score=`,
    `higher_is_better=`, `collate=` and `in_memory=`. Needed are `input`, the type and shape of one input, e.g.
    "float32 64", and `classes`, where there are classes.
    """
    for name, function in (("build_module", build_module), ("load_data", load_data)):
        if not callable(function):
            raise ConfigError(f"{name}: found {type(function).__name__}; needs a function")
    if len(inspect.signature(load_data).parameters) != 1:
        raise ConfigError("load_data: needs one parameter, the node's configuration")
    functions = {key: settings.pop(key) for key in (*OBJECTIVE, *READING) if key in settings}
    given = {"head": "keep", **settings, **FIXED}
    if any(key in functions for key in OBJECTIVE):
        given["objective"] = "given"

    def own() -> Own:
        """Made where it is needed: on the server, and in a node's process for every message."""
        from subbit.objectives.own import OwnObjective
        from subbit.runtime.own_nodes import Own

        chosen = {key: functions[key] for key in OBJECTIVE if key in functions}
        objective = OwnObjective(**chosen) if chosen else None
        reading = {key: functions[key] for key in READING if key in functions}
        return Own(build_module, load_data, objective, **reading)

    def configuration(context: Context) -> str:
        from subbit.config.resolve import write_toml

        return write_toml(deployment_settings(context.run_config, given))

    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        run_server(grid, deployment_settings(context.run_config, given), own())

    return App(server_app, make_client_app(configuration, node_memory, own))

"""Rejects, before the first round, runs for which a privacy guarantee would be wrong."""

from __future__ import annotations

from typing import Any

from subbit.config.schema import RunConfig
from subbit.core.errors import ConfigError
from subbit.privacy.privacy import Privacy


def refuse_run(run: RunConfig, parameters: Any) -> None:
    """Reject options that access the clients' examples elsewhere, or that let others remove the noise."""
    privacy = getattr(getattr(parameters, "local", None), "privacy", None)
    if not isinstance(privacy, Privacy):
        return
    asked = f"privacy={privacy.name}"
    if run.head in ("probe", "lda"):
        raise ConfigError(
            f"{asked}: head={run.head} fits the head on the clients' examples without noise; "
            "use head=kaiming or head=keep, and a selection that trains the head"
        )
    if run.checkpointing:
        raise ConfigError(f"{asked}: gradients of single examples cannot be made again; leave checkpointing out")
    if run.selection != "uniform":
        raise ConfigError(f"{asked}: selection={run.selection} tells losses without noise; use selection=uniform")
    if run.engine == "deployment" and privacy.noise_source == "seed":
        raise ConfigError(
            f"{asked}: everyone in a deployment knows the seed and could take the noise away; use noise_source=system"
        )

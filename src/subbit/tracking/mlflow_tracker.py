"""MLflow: a run in its own store, wherever MLflow is told to keep it (`MLFLOW_TRACKING_URI`)."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from typing import Any

import subbit
from subbit.runtime.event_numbers import metrics_of, numbers_of, step_of
from subbit.runtime.events import Event
from subbit.tracking.tracker import TrackedRun, Tracker

EXPERIMENT = "subbit"
JOB = "subbit.job"
"""The tag by which a resumed run is found again."""
LONGEST_VALUE, MOST_AT_ONCE = 6000, 100
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A server that is not there costs seconds, not minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


class Mlflow(Tracker):
    """A run in MLflow's store: MLFLOW_TRACKING_URI, or mlflow.db in this folder"""

    needs = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        for name, value in DEFAULTS.items():  # Before MLflow is imported.
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # It tells of every table that it makes.
        self.client = MlflowClient()
        experiment = self._experiment()
        found = self.client.search_runs([experiment], f"tags.`{JOB}` = '{run.job}'", max_results=1)
        if found:
            self.id = found[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        tags = {JOB: run.job, "subbit.version": subbit.__version__}
        self.id = self.client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        self._log_config()

    def event(self, event: Event) -> None:
        self._log_metrics(metrics_of(event), step_of(event))

    def finish(self, summary: dict[str, Any]) -> None:
        numbers = {f"summary/{name}": value for name, value in numbers_of(summary).items()}
        self._log_metrics(numbers, int(summary["rounds"]))
        self.client.log_text(self.id, json.dumps(summary, indent=2) + "\n", "summary.json")
        self.client.set_terminated(self.id)

    def stop(self) -> None:
        self.client.set_terminated(self.id, status="KILLED")

    def _experiment(self) -> str:
        """The experiment of the environment, or one called `subbit`, which is made if it is not there."""
        known = os.environ.get("MLFLOW_EXPERIMENT_ID")
        if known:
            return known
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self.client.get_experiment_by_name(name)
        return str(self.client.create_experiment(name) if found is None else found.experiment_id)

    def _log_config(self) -> None:
        from mlflow.entities import Param

        values = [Param(_allowed(key), str(value)[:LONGEST_VALUE]) for key, value in self.run.config.items()]
        for start in range(0, len(values), MOST_AT_ONCE):
            self.client.log_batch(self.id, params=values[start : start + MOST_AT_ONCE])
        self.client.log_text(self.id, self.run.config_text, "config.toml")

    def _log_metrics(self, numbers: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(self.id, [Metric(_allowed(name), value, now, step) for name, value in numbers.items()])


def _allowed(name: str) -> str:
    """MLflow takes these letters only."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]

"""Into MLflow: figures as metrics, the verdict as tags, report and page as artifacts.

The store is MLflow's own choice: MLFLOW_TRACKING_URI, or the folder that it uses without one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from fuelline.pipeline.handed import HandedRun

FOLDER = "fuelline"
"""Among the artifacts of a run."""
_MOST_EXPERIMENTS = 100
_EARLY_S = 5.0
"""The clocks of a tracking server and of this host may differ."""


def attach(handed: HandedRun, where: str) -> str:
    """To the run with the id `where`, whether it has ended or not."""
    client = MlflowClient()
    try:
        client.get_run(where)
        for name, value in handed.figures().items():
            client.log_metric(where, name, value)
        for name, words in handed.tags().items():
            client.set_tag(where, name, words)
        client.log_text(where, handed.markdown, f"{FOLDER}/report.md")
        client.log_artifact(where, str(handed.page), FOLDER)
    except (MlflowException, OSError) as error:
        words = next(iter(str(error).splitlines()), "")
        raise RefusedError(
            f"MLflow did not take it: {words} Run {where!r}, store {_store()}. "
            "Check the id and MLFLOW_TRACKING_URI, and try again."
        ) from None
    return f"run {where} of the MLflow store {_store()}"


def find(began_s: float) -> str | None:
    """MLFLOW_RUN_ID, or the only run that was started since the job was."""
    named = os.environ.get("MLFLOW_RUN_ID")
    if named:
        return named
    client = MlflowClient()
    try:
        experiments = client.search_experiments(max_results=_MOST_EXPERIMENTS)
        runs = client.search_runs(
            [each.experiment_id for each in experiments],
            f"attributes.start_time >= {int((began_s - _EARLY_S) * 1000)}",
            max_results=2,
        )
    except (MlflowException, OSError):
        return None
    return str(runs[0].info.run_id) if len(runs) == 1 else None


def _store() -> str:
    from mlflow import get_tracking_uri  # noqa: PLC0415 - only for words

    return str(get_tracking_uri())

"""The one module that imports MLflow: a store with an experiment, opened safely, and the few calls subquad makes.

Only the sending process imports it, so a user's own MLflow code keeps its settings.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from subquad.tracking.address import sqlite_path, sqlite_uri
from subquad.tracking.values import Point

_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)  # a value the user has set stays

# MLflow reads some settings when it is imported, hence the order.
from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402

_KEY, _PARENT = "subquad.key", "mlflow.parentRunId"
_METRICS_PER_CALL = 1000
_PAIRS_PER_CALL = 20  # of up to 6000 characters: a request stays below the server's limit of 1 MB
_LOCK_SECONDS = 120
_Row = TypeVar("_Row")


class Store:
    """One experiment of one MLflow store. Made by `connect`."""

    def __init__(self, client: MlflowClient, experiment_id: str):
        self._client = client
        self.experiment_id = experiment_id

    def run(self, run_id: str) -> tuple[dict[str, str], str | None] | None:
        """A run's parameters and its parent's id; None where the store has no such run or its user deleted it."""
        try:
            found = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        if found.info.lifecycle_stage != "active" or found.info.experiment_id != self.experiment_id:
            return None
        return dict(found.data.params), found.data.tags.get(_PARENT)

    def find(self, key: str) -> str | None:
        """Id of the run that was made with this key."""
        found = self._client.search_runs([self.experiment_id], f"tags.`{_KEY}` = '{key}'", max_results=1)
        return found[0].info.run_id if found else None

    def create(self, label: str, key: str, parent_run_id: str | None, started: float) -> str:
        """Make a run and return its id; `started` is in seconds since 1970."""
        tags = {_KEY: key, "mlflow.source.name": "subquad", "mlflow.source.type": "LOCAL"}
        if parent_run_id:
            tags[_PARENT] = parent_run_id
        made = self._client.create_run(self.experiment_id, start_time=int(started * 1000), tags=tags, run_name=label)
        return made.info.run_id

    def send_points(self, run_id: str, points: Sequence[Point]) -> None:
        """Metric values; sending one again changes nothing."""
        metrics = [Metric(point.key, point.value, point.time_ms, point.step) for point in points]
        for some in _batches(metrics, _METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=some)

    def send_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Parameters that the run does not have."""
        for some in _batches([Param(key, value) for key, value in params.items()], _PAIRS_PER_CALL):
            self._client.log_batch(run_id, params=some)

    def send_tags(self, run_id: str, tags: Mapping[str, str], parent_run_id: str | None = None) -> None:
        """Tags; an existing one is replaced."""
        tags = {**tags, _PARENT: parent_run_id} if parent_run_id else tags
        for some in _batches([RunTag(key, value) for key, value in tags.items()], _PAIRS_PER_CALL):
            self._client.log_batch(run_id, tags=some)

    def reopen(self, run_id: str) -> None:
        """Mark a run as running."""
        self._client.update_run(run_id, status="RUNNING")

    def close_run(self, run_id: str, status: str, ended: float) -> None:
        """Mark a run as FINISHED, FAILED or KILLED; `ended` is in seconds since 1970."""
        self._client.set_terminated(run_id, status, end_time=int(ended * 1000))

    def send_text(self, run_id: str, text: str, name: str) -> None:
        """An artefact from a text."""
        self._client.log_text(run_id, text, name)

    def send_file(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """An artefact from a file."""
        self._client.log_artifact(run_id, str(path), folder)


def connect(uri: str, experiment: str, artifacts: Path | None) -> Store:
    """Open a store and its experiment, making either where it is missing.

    Args:
        uri: the store, absolute.
        experiment: the experiment's name.
        artifacts: folder for the artefacts of a new experiment; None: the server decides.

    Raises:
        MlflowException: the store refuses.
    """
    database = sqlite_path(uri)
    if database is None:
        return _open(uri, experiment, artifacts)
    database.parent.mkdir(parents=True, exist_ok=True)
    # MLflow destroys a new sqlite file that several processes open at once.
    with FileLock(f"{database}.lock", timeout=_LOCK_SECONDS):
        if not database.exists():
            _create_database(database)
        return _open(uri, experiment, artifacts)


def open_client(uri: str) -> MlflowClient:
    """MLflow's client of a store that exists."""
    with _quiet():
        return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _batches(rows: list[_Row], size: int) -> Iterator[list[_Row]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _create_database(database: Path) -> None:
    """Make the tables in a file beside it and rename it: a process killed meanwhile leaves no half database."""
    draft = database.with_name(f"{database.name}.new")
    draft.unlink(missing_ok=True)
    with _quiet():
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        SqlAlchemyStore(sqlite_uri(draft), str(database.parent)).engine.dispose()
    os.replace(draft, database)


def _open(uri: str, experiment: str, artifacts: Path | None) -> Store:
    client = open_client(uri)
    if client.get_experiment_by_name(experiment) is None:
        try:
            client.create_experiment(experiment, artifact_location=artifacts.as_uri() if artifacts else None)
        except MlflowException:
            if client.get_experiment_by_name(experiment) is None:  # else another process was faster
                raise
    found = client.get_experiment_by_name(experiment)
    if found is None or found.lifecycle_stage != "active":
        raise MlflowException(f"experiment {experiment!r} was deleted: restore it, or name another one")
    return Store(client, found.experiment_id)


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow's own tables use a loader that SQLAlchemy 2.1 deprecates; nothing subquad could change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy", category=DeprecationWarning)
        yield

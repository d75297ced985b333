"""The one module that imports MLflow: a store with an experiment, opened safely, and what its runs
are sent.

Only the sending process imports it, so a user's own MLflow code keeps its settings.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from subquad.addresses import mask
from subquad.errors import RunError
from subquad.record.sums import manifest_of
from subquad.security.disk import (
    delete,
    hold,
    make_folder,
    opened,
    rename,
    replacing,
    temporary_beside,
)
from subquad.tracking.address import sqlite_path, sqlite_uri
from subquad.tracking.database import check_database
from subquad.tracking.mirror import About, Ending
from subquad.tracking.values import (
    PARAM_LIMIT,
    TAG_LIMIT,
    Point,
    Values,
    nonfinite_tags,
    texts,
    unsent,
)

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
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.store.artifact.artifact_repository_registry import (  # noqa: E402
    get_artifact_repository,
)

_KEY, _ENDED = "subquad.key", "subquad.ended"
"""Tags by which a run is found again, and its end, if all of that is there."""
_METRICS_PER_CALL = 1000
_PAIRS_PER_CALL = 20  # of up to 6000 characters: a request stays below the server's limit of 1 MB
_RUNS_PER_CALL = 1000
_LOCK_SECONDS = 120
_AS_TEXT = (".yaml", ".json", ".md", ".csv", ".html")
"""Files that are sent as text, so that no address in them carries a password."""


class StoredRun:
    """A run of a store.

    Attributes:
        id: MLflow's.
    """

    def __init__(self, client: MlflowClient, run: Run, artifacts: Path | None):
        self.id = run.info.run_id
        self._tags = dict(run.data.tags)
        self._client = client
        self._status = run.info.status
        self._params = dict(run.data.params)
        # of each metric the last step, which `data.metrics` leaves out
        self._steps = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        self._has_data = bool(run.inputs and run.inputs.dataset_inputs)
        self._place = str(run.info.artifact_uri)
        self._artifacts = artifacts

    def describe(self, what: About, above: Values) -> None:
        """Send what it lacks of what a folder is.

        Args:
            above: tags that name its parent.
        """
        tags = {**what.tags, **above}
        added = []
        for key, text in texts(what.params).items():
            value = text[:PARAM_LIMIT]
            if value != text:
                size = len(text)
                tags[f"param_cut.{key}"] = (
                    f"{size} characters; all of them in the artefact experiment.yaml"
                )
            if key not in self._params:
                added.append(Param(key, value))
            elif self._params[key] != value:  # MLflow refuses to change it
                tags[f"param_changed.{key}"] = value
        self._log("params", added, _PAIRS_PER_CALL)
        self.tag(tags)
        if what.data.get("name") and not self._has_data:
            self._client.log_inputs(self.id, [_dataset(what.data)])

    def tag(self, values: Values) -> None:
        """Send tags that it lacks or has with another value."""
        tags = {key: text[:TAG_LIMIT] for key, text in texts(values).items()}
        new = dict(tags.items() - self._tags.items())
        self._log("tags", [RunTag(key, value) for key, value in new.items()], _PAIRS_PER_CALL)
        self._tags |= new

    def add(self, points: Sequence[Point]) -> None:
        """Send each metric's values above the last step of it that MLflow has."""
        self._send(unsent(points, self._steps))

    def _send(self, points: Sequence[Point]) -> None:
        """MLflow would turn an infinity into 1.8e308, so none is sent; the first value that is not
        finite is a tag.
        """
        finite = [Metric(*point) for point in points if not math.isinf(point.value)]
        self._log("metrics", finite, _METRICS_PER_CALL)
        self.tag({**nonfinite_tags(points), **self._tags})

    def _log(self, kind: str, rows: Sequence[Any], most: int) -> None:
        """Send some in each call."""
        for start in range(0, len(rows), most):
            some: dict[str, Any] = {kind: rows[start : start + most]}
            self._client.log_batch(self.id, **some)

    def reopen(self) -> None:
        """Mark a run as running that goes on after its end was told."""
        if self._status != "RUNNING":
            self._client.update_run(self.id, status="RUNNING")
            self._status = "RUNNING"
            self.tag({"subquad.status": "running", _ENDED: ""})

    def close(self, folder: Path, end: Ending) -> None:
        """Tell its end, unless this very end was told. Final metrics and status come first:
        artefacts may need a storage that this machine cannot reach.
        """
        files = manifest_of({name: folder / name for name in end.files})
        values = [(point.key, point.step, point.value) for point in end.points]
        told = json.dumps([end.status, end.tags, values, files], sort_keys=True, default=str)
        digest = hashlib.sha256(told.encode()).hexdigest()[:16]
        if self._tags.get(_ENDED) == digest:
            return
        self._send(end.points)
        self.tag(end.tags)
        self._client.set_terminated(self.id, end.status, end_time=int(end.time * 1000))
        self._status = end.status
        for name in end.files:
            self._send_file(folder / name, name)
        self.tag({_ENDED: digest})

    def _send_file(self, path: Path, name: str) -> None:
        """Send a file as an artefact. Where it goes is not a database's to say, nor another user's
        of a server: below this store's own folder, or to the server itself. MLflow takes no path
        for a run's id.

        Raises:
            RunError: the server names another place; or a part of the path is a link.
        """
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, path.name)  # MLflow would follow a link in its place
            with opened(path) as source, opened(copy, "xb") as target:
                if path.suffix in _AS_TEXT:
                    target.write(mask(source.read().decode()).encode())
                else:
                    shutil.copyfileobj(source, target)
            if self._artifacts is None:
                self._to_server(copy, name)
                return
            own = self._artifacts / self.id / "artifacts" / name
            with opened(copy) as source, replacing(own) as target:
                shutil.copyfileobj(source, target)

    def _to_server(self, path: Path, name: str) -> None:
        uri = self._client.tracking_uri
        own = "dbfs" if uri.startswith("databricks") else "mlflow-artifacts"
        if not re.match(f"{own}:/(?!/)", self._place):
            raise RunError(
                f"no artefacts are sent: the server wants them at {mask(self._place)}, "
                "and they go to the server itself alone"
            )
        above, _, _ = name.rpartition("/")
        repository = get_artifact_repository(self._place, tracking_uri=uri)
        repository.log_artifact(str(path), above or None)


def _dataset(data: Values) -> DatasetInput:
    source = json.dumps(data, sort_keys=True, default=str)
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    label = str(data.get("label") or data["name"])
    context = InputTag("mlflow.data.context", "training")
    return DatasetInput(Dataset(label, digest, "subquad", source), [context])


class Store:
    """One experiment of one MLflow store. Made by `connect`."""

    def __init__(self, client: MlflowClient, experiment_id: str, artifacts: Path | None):
        self._client = client
        self.experiment_id = experiment_id
        self._artifacts = artifacts

    def runs(self, key: str) -> dict[str, StoredRun]:
        """Runs by the keys they were made with, of those that begin with this one; without those
        that their user deleted.
        """
        query = f"tags.`{_KEY}` LIKE '{key}%'"
        found: dict[str, StoredRun] = {}
        page = None
        while page is None or page.token:
            token = page.token if page else None
            page = self._client.search_runs(
                [self.experiment_id], query, max_results=_RUNS_PER_CALL, page_token=token
            )
            for run in page:
                found[run.data.tags[_KEY]] = StoredRun(self._client, run, self._artifacts)
        return found

    def create(self, label: str, key: str, began: float) -> StoredRun:
        """Make a run that began at a time in seconds since 1970."""
        tags = {
            _KEY: key,
            "mlflow.source.name": "subquad",
            "mlflow.source.type": "LOCAL",
        }
        made = self._client.create_run(self.experiment_id, int(began * 1000), tags, label)
        return StoredRun(self._client, made, self._artifacts)


def connect(uri: str, experiment: str, artifacts: Path | None) -> Store:
    """Open a store and its experiment, making either where it is missing.

    Args:
        uri: the store, absolute.
        experiment: the experiment's name.
        artifacts: folder for the artefacts; None: they go to the server.

    Raises:
        MlflowException: the store refuses, or is of another MLflow.
        RunError: see `check_database`.
    """
    if artifacts:
        hold(artifacts.parent)  # nothing below is reached through a link from here on
    database = sqlite_path(uri)
    if database is None:
        return _open(uri, experiment, artifacts)
    make_folder(database.parent, exist_ok=True)
    # MLflow destroys a new sqlite file that several processes open at once.
    with FileLock(f"{database}.lock", timeout=_LOCK_SECONDS):
        if not os.path.lexists(database):
            _create_database(database)
        check_database(database)
        _check_version(uri)
        return _open(uri, experiment, artifacts)


def open_client(uri: str) -> MlflowClient:
    """MLflow's client of a store that exists."""
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _create_database(database: Path) -> None:
    """Make the tables in a file beside it and rename it: a process killed meanwhile leaves no
    half database.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for left in database.parent.glob(f".{database.name}.*.tmp"):
        delete(left)
    draft = temporary_beside(database)
    SqlAlchemyStore(sqlite_uri(draft), str(database.parent)).engine.dispose()
    rename(draft, database)


def _check_version(uri: str) -> None:
    """MLflow would change the tables of an older version by itself."""
    from mlflow.store.db.utils import _verify_schema, create_sqlalchemy_engine

    engine = create_sqlalchemy_engine(uri)
    try:
        _verify_schema(engine)
    finally:
        engine.dispose()


def _open(uri: str, experiment: str, artifacts: Path | None) -> Store:
    client = open_client(uri)
    if client.get_experiment_by_name(experiment) is None:
        with suppress(MlflowException):  # another process was faster
            client.create_experiment(experiment, artifacts.as_uri() if artifacts else None)
    found = client.get_experiment_by_name(experiment)
    if found is None or found.lifecycle_stage != "active":
        raise MlflowException(
            f"experiment {experiment!r} was deleted: restore it, or name another one"
        )
    return Store(client, found.experiment_id, artifacts)

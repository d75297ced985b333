"""The one module that imports MLflow: a store with an experiment, opened safely, and what its runs
are sent.

Only the sending process imports it, so a user's own MLflow code keeps its settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Metric, Param, Run, RunTag
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from subquad.addresses import mask
from subquad.errors import RunError
from subquad.record.metrics import Place
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
from subquad.tracking.address import artifact_folder, sqlite_path, sqlite_uri
from subquad.tracking.mirror import About, Point, Values, key_of, root_above, texts, unsent
from subquad.tracking.publisher import Publisher

_KEY, _FILES = "subquad.key", "subquad.files"
"""Tags by which a run is found again, and what files of it are there."""
_RUNS_PER_CALL = 1000
_LOCK_SECONDS = 120
_AS_TEXT = (".yaml", ".json", ".md", ".csv", ".html")
"""Files that are sent as text, so that no address in them carries a password."""

_NAMES_A_FILE = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that belongs to several databases: SQLite deletes a file that it names."""
_STRANGE = """
    SELECT type, name FROM sqlite_master
    WHERE type = 'view' OR type = 'trigger' AND tbl_name != 'secrets' OR sql LIKE 'CREATE VIRTUAL%'
"""
"""MLflow's own only trigger is on a table that runs have no part in."""


class StoredRun:
    """What MLflow has of a run.

    Attributes:
        id: MLflow's, as the store says.
        artifacts: where its artefacts go, as the store says.
        status: RUNNING, FINISHED, FAILED or KILLED.
        params, tags: texts by name.
        steps: the last step of each metric.
        has_data: whether its data set is there.
        place: how far the records of its folder were sent.
    """

    def __init__(self, run: Run):
        self.id = run.info.run_id
        self.artifacts = str(run.info.artifact_uri)
        self.status = run.info.status
        self.params = dict(run.data.params)
        self.tags = dict(run.data.tags)
        # `data.metrics` leaves the steps out
        self.steps = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        self.has_data = bool(run.inputs and run.inputs.dataset_inputs)
        self.place = Place()


class Store:
    """The experiment of an MLflow store that a folder is sent to, either made where it is missing.

    Attributes:
        runs: its runs of that folder and of what is below; without those that their user deleted.

    Raises:
        MlflowException: the store refuses, or is of another MLflow.
        RunError: a database file is more than tables, see `_check_database`.
    """

    def __init__(self, publisher: Publisher):
        self._folder = publisher.folder
        self._key = key_of(publisher.folder)
        self._artifacts = artifact_folder(publisher.uri, root_above(publisher.folder))
        if self._artifacts:
            hold(self._artifacts.parent)  # nothing below is reached through a link from here on
        database = sqlite_path(publisher.uri)
        with _prepared(database, publisher.uri) if database else nullcontext():
            self._client = MlflowClient(publisher.uri)
            name = publisher.experiment
            found = self._client.get_experiment_by_name(name)
            place = self._artifacts.as_uri() if self._artifacts else None
            self._experiment = (
                found.experiment_id if found else self._client.create_experiment(name, place)
            )
        self.runs: dict[Path, StoredRun] = {}
        token: str | None = ""
        while token is not None:
            page = self._client.search_runs(
                [self._experiment],
                f"tags.`{_KEY}` LIKE '{self._key}%'",
                max_results=_RUNS_PER_CALL,
                page_token=token,
            )
            for run in page:
                _, _, part = run.data.tags[_KEY].partition("/")
                self.runs[self._folder / part] = StoredRun(run)
            token = page.token or None

    def create(self, folder: Path, label: str, began: float, above: Values) -> StoredRun:
        """Make the run of a folder, which began at a time in seconds since 1970.

        Args:
            above: tags that name its parent.
        """
        key = f"{self._key}/{folder.relative_to(self._folder)}"
        tags = {_KEY: key, "mlflow.source.name": "subquad", "mlflow.source.type": "LOCAL", **above}
        run = self.runs[folder] = StoredRun(
            self._client.create_run(self._experiment, int(began * 1000), tags, label)
        )
        return run

    def bring(self, run: StoredRun, folder: Path, what: About, points: Sequence[Point]) -> None:
        """Send what a run lacks: settings, data set, each metric's values above the last step of it
        that MLflow has, tags, status, and at the end files. These come last: they may need a
        storage that this machine cannot reach.
        """
        params = {  # MLflow refuses to change one
            key: text for key, text in texts(what.params).items() if key not in run.params
        }
        self._client.log_batch(
            run.id,
            params=[Param(*pair) for pair in params.items()],
            metrics=[Metric(*point) for point in unsent([*points, *what.points], run.steps)],
        )
        run.params |= params
        self._tag(run, what.tags)
        name = what.tags.get("subquad.dataset")
        if name and not run.has_data:
            source = json.dumps(
                {key: value for key, value in what.params.items() if key.startswith("dataset.")},
                default=str,
            )
            self._client.log_inputs(
                run.id, [DatasetInput(Dataset(name, _digest(source), "subquad", source))]
            )
            run.has_data = True
        if what.status != run.status:
            self._client.set_terminated(run.id, what.status, int(what.time * 1000))
            run.status = what.status
        if what.status != "RUNNING":
            self._send_files(run, folder, what.files)

    def _tag(self, run: StoredRun, values: Values) -> None:
        """Send tags that it lacks or has with another value."""
        tags = texts(values)
        self._client.log_batch(
            run.id, tags=[RunTag(*pair) for pair in tags.items() - run.tags.items()]
        )
        run.tags |= tags

    def _send_files(self, run: StoredRun, folder: Path, names: Sequence[str]) -> None:
        """Send files as artefacts, unless these very files are there. Where they go is not a
        database's to say, nor another user's of a server: below this store's own folder, or to the
        server itself.

        Raises:
            RunError: the server names another place, or a run by a path; or a part of the path is
                a link.
        """
        digest = _digest(repr(manifest_of({name: folder / name for name in names})))
        if run.tags.get(_FILES) == digest:
            return
        if not run.id.isalnum():
            raise RunError(f"no artefacts are sent: {run.id!r} is no id of a run")
        server = self._client.tracking_uri
        own = "dbfs" if server.startswith("databricks") else "mlflow-artifacts"
        if not self._artifacts and not re.match(f"{own}:/(?!/)", run.artifacts):
            raise RunError(
                f"no artefacts are sent: the server wants them at {mask(run.artifacts)}, "
                "and they go to the server itself alone"
            )
        with tempfile.TemporaryDirectory() as scratch:
            target = (self._artifacts or Path(scratch)) / run.id / "artifacts"
            for name in names:
                with opened(folder / name) as source, replacing(target / name) as copy:
                    if name.endswith(_AS_TEXT):
                        copy.write(mask(source.read().decode()).encode())
                    else:
                        shutil.copyfileobj(source, copy)
            if not self._artifacts:
                get_artifact_repository(run.artifacts, tracking_uri=server).log_artifacts(
                    str(target)
                )
        self._tag(run, {_FILES: digest})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _prepared(database: Path, uri: str) -> Iterator[None]:
    """Make a database where there is none, in a file beside it that is renamed: a process killed
    meanwhile leaves no half one. During the block no other process makes anything in it.

    MLflow would change the tables of an older version by itself, and destroys a new file that
    several processes open at once.
    """
    from mlflow.store.db.utils import _verify_schema, create_sqlalchemy_engine
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    make_folder(database.parent, exist_ok=True)
    with FileLock(f"{database}.lock", timeout=_LOCK_SECONDS):
        if not os.path.lexists(database):
            for left in database.parent.glob(f".{database.name}.*.tmp"):
                delete(left)
            draft = temporary_beside(database)
            SqlAlchemyStore(sqlite_uri(draft), str(database.parent)).engine.dispose()
            rename(draft, database)
        _check_database(database)
        engine = create_sqlalchemy_engine(uri)
        _verify_schema(engine)
        engine.dispose()
        yield


def _check_database(database: Path) -> None:
    """Refuse a database file that is more than tables; its folder is held.

    Raises:
        RunError: it or a file beside it that SQLite would open is a link or a pipe; or it does
            things by itself; or it is no database.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside = database.with_name(f"{database.name}{suffix}")
        with suppress(FileNotFoundError), opened(beside) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - len(_NAMES_A_FILE)))
            if stream.read() == _NAMES_A_FILE:
                raise RunError(f"{beside}: names another file, which SQLite would delete")
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as connection:
            for kind, name in connection.execute(_STRANGE):
                raise RunError(f"{database}: has a {kind} {name}, which MLflow does not make")
    except sqlite3.Error as error:
        raise RunError(f"{database}: {error}") from error

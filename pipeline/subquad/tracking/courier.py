"""Carries one run, or a study's parent run, to MLflow. What matters is in mlflow.json, so any process can go on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from subquad.runs import EXPERIMENT, METRICS, RESULT, read_records
from subquad.tracking.artifacts import send_run_artifacts, send_study_artifacts
from subquad.tracking.contracts import TrackedRun
from subquad.tracking.outcome import Outcome, run_outcome, study_outcome
from subquad.tracking.points import nonfinite_tags, points, storable
from subquad.tracking.progress import Progress, begin, load, recreated, save
from subquad.tracking.spool import Batch, Spool

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store

LOCK = ".mlflow.lock"
_LOCK_SECONDS = 5
_BATCH_METRICS = 1000


class Busy(Exception):
    """Another process is sending the same run."""


class Courier(ABC):
    """One MLflow run.

    Args:
        run: folder, name, parameters and tags.
        uri: the store, without credentials.
        experiment: name of the MLflow experiment.
    """

    def __init__(self, run: TrackedRun, uri: str, experiment: str):
        self.run = run
        self.folder = run.folder
        self._uri, self._experiment = uri, experiment
        self._spool = Spool(run.folder)
        self._attached_to: tuple[Store, str | None] | None = None
        self.settled = False
        """Whether all of it was sent and nothing can come any more; only trials of a search ever are."""

    @abstractmethod
    def outcome(self, *, final: bool) -> Outcome | None:
        """How it ended; None while it goes on."""

    @abstractmethod
    def send_artifacts(self, store: Store, run_id: str) -> None:
        """What goes to MLflow at the end."""

    @abstractmethod
    def started(self) -> bool:
        """Whether there is anything to carry yet."""

    def began(self) -> float:
        """When it began, seconds since 1970: its first record, or the folder itself."""
        first = next(read_records(self.folder), None)
        return first.time if first else self.folder.stat().st_mtime

    def prepare(self) -> None:
        """Write down what MLflow shall be told, so that any process can do it later.

        A run that another store has stays with that one until this one has answered.
        """
        with self._alone():
            old = load(self.folder)
            if old is None or old.uri == self._uri or old.run_id is None:
                self._prepared()

    def _prepared(self) -> Progress:
        old, run = load(self.folder), self.run
        progress = begin(
            old, uri=self._uri, experiment=self._experiment, label=run.label, params=run.params, tags=run.tags
        )
        return progress if progress == old else save(self.folder, progress)

    def step(self, store: Store, parent_run_id: str | None, *, final: bool) -> Progress:
        """Send what is new; at the end also artefacts and status.

        Raises:
            Busy: another process is sending the same run.
        """
        with self._alone():
            try:
                return self._step(store, parent_run_id, final)
            except Exception:
                self._attached_to = None  # the run may be gone: look for it again
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with FileLock(str(self.folder / LOCK), timeout=_LOCK_SECONDS):
                yield
        except Timeout as error:
            raise Busy(f"{self.folder}: another process is sending this run") from error

    def _step(self, store: Store, parent_run_id: str | None, final: bool) -> Progress:
        progress = self._prepared()
        if self._attached_to != (store, progress.run_id):
            progress = self._attach(store, progress, parent_run_id)
        if not progress.described:
            progress = self._describe(store, progress)
        end = self.outcome(final=final)
        if end is None and progress.closed and not progress.reopened:
            progress = self._reopen(store, progress)
        while batch := self._spool.next(progress, _BATCH_METRICS):
            progress = self._send(store, progress, batch)
        if end and _to_close(progress, end, final):
            progress = self._close(store, progress, end)
        return progress

    def _attach(self, store: Store, progress: Progress, parent_run_id: str | None) -> Progress:
        """Find the run again, or make it."""
        state = store.run(progress.run_id) if progress.run_id else None
        if state is None:
            made = store.find(progress.key) or store.create(progress.label, progress.key, parent_run_id, self.began())
            progress = recreated(progress, made, parent_run_id)
        elif state.parent_run_id != parent_run_id:
            progress = replace(progress, parent_run_id=parent_run_id, described=False)
        progress = save(self.folder, replace(progress, experiment_id=store.experiment_id))
        self._attached_to = (store, progress.run_id)
        return progress

    def _describe(self, store: Store, progress: Progress) -> Progress:
        """Send parameters and tags. MLflow refuses to change a parameter: a new value becomes a tag."""
        run_id = _id(progress)
        state = store.run(run_id)
        known = state.params if state else {}
        store.send_params(run_id, {key: value for key, value in progress.params.items() if key not in known})
        changed = {key: value for key, value in progress.params.items() if known.get(key, value) != value}
        tags = {**progress.tags, **{f"param_changed.{key}"[:250]: value[:5000] for key, value in changed.items()}}
        if progress.parent_run_id:
            tags["mlflow.parentRunId"] = progress.parent_run_id
        store.send_tags(run_id, tags)
        return save(self.folder, replace(progress, described=True))

    def _send(self, store: Store, progress: Progress, batch: Batch) -> Progress:
        run_id = _id(progress)
        if progress.closed and not progress.reopened and batch.records:
            self._reopen(store, progress)
            batch = replace(batch, after=replace(batch.after, reopened=True, done=False))
        found = [point for record in batch.records for point in points(record)]
        tags = nonfinite_tags(found)
        if batch.unreadable is not None:
            tags["subquad.unreadable_record"] = f"first in line {batch.unreadable} of {METRICS}"
        new = {name: value for name, value in tags.items() if name not in progress.noted}
        store.send_tags(run_id, new)
        store.send_points(run_id, storable(found))
        return save(self.folder, replace(batch.after, noted=(*progress.noted, *new)))

    def _reopen(self, store: Store, progress: Progress) -> Progress:
        """A run that goes on after its end was told."""
        store.reopen(_id(progress))
        store.send_tags(_id(progress), {"subquad.status": "running"})
        return save(self.folder, replace(progress, reopened=True, done=False))

    def _close(self, store: Store, progress: Progress, end: Outcome) -> Progress:
        """Final metrics and status first: artefacts may need a storage that this machine cannot reach."""
        run_id = _id(progress)
        store.send_points(run_id, storable(list(end.points)))
        store.send_tags(run_id, {**end.tags, **nonfinite_tags(list(end.points))})
        store.close_run(run_id, end.status, end.ended)
        progress = save(self.folder, replace(progress, closed=end.digest, reopened=False, done=False))
        self.send_artifacts(store, run_id)
        return save(self.folder, replace(progress, done=True))


class RunCourier(Courier):
    """Carries a run.

    Args:
        cell: whether it belongs to a study.
    """

    def __init__(self, run: TrackedRun, uri: str, experiment: str, *, cell: bool):
        super().__init__(run, uri, experiment)
        self._cell = cell

    def started(self) -> bool:
        return started(self.folder, cell=self._cell)

    def outcome(self, *, final: bool) -> Outcome | None:
        return run_outcome(self.folder, final=final)

    def send_artifacts(self, store: Store, run_id: str) -> None:
        send_run_artifacts(store, run_id, self.folder)


class StudyCourier(Courier):
    """Carries a study's parent run.

    Args:
        cells: folders of the cells this driver runs; some may not exist yet.
    """

    def __init__(self, run: TrackedRun, uri: str, experiment: str, cells: Sequence[Path]):
        super().__init__(run, uri, experiment)
        self._cells = cells

    def started(self) -> bool:
        return self.folder.exists()

    def outcome(self, *, final: bool) -> Outcome | None:
        return study_outcome(self.folder, self._cells, final=final)

    def send_artifacts(self, store: Store, run_id: str) -> None:
        send_study_artifacts(store, run_id, self.folder)


def started(run: Path, *, cell: bool) -> bool:
    """Whether a run has begun. A study writes the settings of all its cells first, so they are no sign there."""
    return any((run / name).exists() for name in ((METRICS, RESULT) if cell else (EXPERIMENT, METRICS, RESULT)))


def _to_close(progress: Progress, end: Outcome, final: bool) -> bool:
    """Whether MLflow has to be told this end: not twice, and not that of an attempt before the one that goes on."""
    if progress.closed != end.digest:
        return True
    return not progress.done and (final or not progress.reopened)


def _id(progress: Progress) -> str:
    assert progress.run_id is not None, "attached before anything is sent"
    return progress.run_id

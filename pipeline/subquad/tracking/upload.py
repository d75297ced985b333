"""Send folders to MLflow: what the process beside the driver does. It is started by `Publisher` and ends when it does.

A process and not a thread: importing MLflow and talking to a database then never hold the interpreter that trains, no
connection is open when data loaders fork, no environment variable of the user's process changes, and it can be stopped.
What matters is in each folder's mlflow.json, so any process can go on where another one ended.

Standard input: an `Upload` on the first line; then `close SECONDS`, or the end of the stream when the driver died.
Standard output: a `Summary`, once, at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from pydantic import BaseModel

from subquad.runs import METRICS
from subquad.tracking.address import check_server, mask
from subquad.tracking.folders import Ending, TrackedFolder, parent_of, tracked
from subquad.tracking.spool import Batch, SyncState, next_batch, unsent
from subquad.tracking.values import clean_params, clean_tags, nonfinite_tags, points_of, storable

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store

_LOCK = ".mlflow.lock"
_LOCK_SECONDS = 5
_BATCH_METRICS = 1000
_ORPHAN_SECONDS = 60.0


class Upload(BaseModel, frozen=True):
    """What is to be sent, and where to.

    Attributes:
        uri: the MLflow store, absolute, with its credentials.
        experiment: name of the MLflow experiment.
        artifacts: folder for artefacts where the store is a database; None: the server decides.
        folder: a run, or a study or search with all runs below it.
        poll_s: seconds between looks at the folder.
        retry_s: seconds until a store that did not answer is tried again.
    """

    uri: str
    experiment: str
    artifacts: Path | None
    folder: Path
    poll_s: float = 2.0
    retry_s: float = 15.0


class Summary(BaseModel, frozen=True):
    """What reached MLflow.

    Attributes:
        delivered: every record, artefact and status is there.
        pending: records that are not.
        uri: the store, without credentials; None where tracking is off.
        experiment_id: MLflow's id of the experiment.
        parent_run_id: the study's or search's run.
        run_ids: MLflow's run ids, in the order of the runs; those that have one.
        error: why something was not delivered, one line without credentials.
    """

    delivered: bool
    pending: int = 0
    uri: str | None = None
    experiment_id: str | None = None
    parent_run_id: str | None = None
    run_ids: tuple[str, ...] = ()
    error: str | None = None


class Uploader:
    """Sends a folder, with all runs below it, again and again until `final`."""

    def __init__(self, upload: Upload):
        self._upload = upload
        self._store: Store | None = None
        self._head = _Sender(tracked(upload.folder), upload)
        self._runs: dict[Path, _Sender] = {}

    def look(self, *, final: bool) -> str | None:
        """Send what is new; never raises.

        Returns:
            Why something could not be sent, None where all could.
        """
        try:
            for folder in self._head.tracked.children():
                self._runs.setdefault(folder, _Sender(tracked(folder), self._upload))
            for sender in (self._head, *self._waiting()):
                sender.prepare()
            return self._send(self._connected(), final)
        except Exception as error:  # whatever a server, a disk or MLflow may raise must not reach training
            self._store = None
            return _reason(error)

    def _connected(self) -> Store:
        if self._store is None:
            check_server(self._upload.uri)
            from subquad.tracking.mlflow import connect

            self._store = connect(self._upload.uri, self._upload.experiment, self._upload.artifacts)
        return self._store

    def _waiting(self) -> list[_Sender]:
        return [one for one in self._runs.values() if not one.settled and one.tracked.started()]

    def _send(self, store: Store, final: bool) -> str | None:
        if not self._head.tracked.started():
            return None
        above = self._run_above()
        if not self._runs:
            return self._try(self._head, store, above, final)
        head_id = self._head.step(store, above, final=False).run_id
        errors = [self._try(one, store, head_id, final) for one in self._waiting()]
        if final:
            errors.append(self._try(self._head, store, above, final))
        return next((error for error in errors if error), None)

    def _run_above(self) -> str | None:
        """MLflow's id of the search that a final study belongs to, where it was sent there too."""
        parent = parent_of(self._upload.folder)
        above = _state_at(parent, mask(self._upload.uri)) if parent else None
        return above.run_id if above and above.experiment == self._upload.experiment else None

    def _try(self, sender: _Sender, store: Store, parent_id: str | None, final: bool) -> str | None:
        """One run's trouble does not keep the others back, a server that is gone does."""
        try:
            sender.step(store, parent_id, final=final)
        except Exception as error:  # as in `look`
            check_server(self._upload.uri)
            return _reason(error)
        return None


class _Sender:
    """Sends one folder as one MLflow run."""

    def __init__(self, folder: TrackedFolder, upload: Upload):
        self.tracked, self._folder = folder, folder.folder
        self._uri, self._experiment = mask(upload.uri), upload.experiment
        self._attached_to: tuple[Store, str | None] | None = None
        self.settled = False
        """Whether all of it was sent and nothing can come any more."""

    def prepare(self) -> None:
        """Write down where the folder is sent to, so that any process can do it later.

        A run that another store has stays with that one until this one has answered.
        """
        with self._alone():
            old = SyncState.load(self._folder)
            if (old is None or old.run_id is None) and old != (state := self._state()):
                state.save(self._folder)

    def step(self, store: Store, parent_run_id: str | None, *, final: bool) -> SyncState:
        """Send what is new; at the end also artefacts and status.

        Raises:
            Busy: another process is sending the same run.
        """
        with self._alone():
            over = self.tracked.is_over()
            try:
                state = self._step(store, parent_run_id, final)
            except Exception:
                self._attached_to = None  # the run may be gone: look for it again
                raise
            self.settled = over and state.done
            return state

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with FileLock(str(self._folder / _LOCK), timeout=_LOCK_SECONDS):
                yield
        except Timeout as error:
            raise Busy(f"{self._folder}: another process is sending this run") from error

    def _state(self) -> SyncState:
        return SyncState.of(SyncState.load(self._folder), self._uri, self._experiment)

    def _step(self, store: Store, parent_run_id: str | None, final: bool) -> SyncState:
        state = self._state()
        if self._attached_to != (store, state.run_id):
            state = self._attach(store, state, parent_run_id)
        state = self._describe(store, state)
        end = self.tracked.ending(final=final, closed=state.closed)
        if end is None and state.closed and not state.reopened:
            state = self._reopen(store, state)
        while batch := next_batch(self._folder, state, _BATCH_METRICS):
            state = self._send(store, state, batch)
        if end and _is_news(state, end, final):
            state = self._close(store, state, end)
        return state

    def _attach(self, store: Store, state: SyncState, parent_run_id: str | None) -> SyncState:
        """Find the run again, or make it."""
        found = store.run(state.run_id) if state.run_id else None
        if found is None:
            label, began = self.tracked.label, self.tracked.began()
            run_id = store.find(state.key) or store.create(label, state.key, parent_run_id, began)
            state = state.recreated(run_id, parent_run_id)
        elif found[1] != parent_run_id:
            state = replace(state, parent_run_id=parent_run_id, described="")
        state = replace(state, experiment_id=store.experiment_id).save(self._folder)
        self._attached_to = (store, state.run_id)
        return state

    def _describe(self, store: Store, state: SyncState) -> SyncState:
        """Send parameters and tags. MLflow refuses to change a parameter: a new value becomes a tag."""
        settings, said = self.tracked.describe()
        params, cut = clean_params(settings)
        tags = {**clean_tags({name: str(value) for name, value in said.items() if value is not None}), **cut}
        digest = hashlib.sha256(json.dumps([params, tags]).encode()).hexdigest()[:16]
        if state.described == digest:
            return state
        run_id = _id(state)
        known, _ = store.run(run_id) or ({}, None)
        store.send_params(run_id, {key: value for key, value in params.items() if key not in known})
        changed = {key: value for key, value in params.items() if known.get(key, value) != value}
        tags |= clean_tags({f"param_changed.{key}": value for key, value in changed.items()})
        store.send_tags(run_id, tags, state.parent_run_id)
        return replace(state, described=digest).save(self._folder)

    def _send(self, store: Store, state: SyncState, batch: Batch) -> SyncState:
        run_id, after = _id(state), batch.after
        if state.closed and not state.reopened and batch.records:
            self._reopen(store, state)
            after = replace(after, reopened=True, done=False)
        found = [point for record in batch.records for point in points_of(record)]
        tags = nonfinite_tags(found)
        if batch.unreadable is not None:
            tags["subquad.unreadable_record"] = f"first in line {batch.unreadable} of {METRICS}"
        new = {name: value for name, value in tags.items() if name not in state.noted}
        store.send_tags(run_id, new)
        store.send_points(run_id, storable(found))
        return replace(after, noted=(*state.noted, *new)).save(self._folder)

    def _reopen(self, store: Store, state: SyncState) -> SyncState:
        """A run that goes on after its end was told."""
        store.reopen(_id(state))
        store.send_tags(_id(state), {"subquad.status": "running"})
        return replace(state, reopened=True, done=False).save(self._folder)

    def _close(self, store: Store, state: SyncState, end: Ending) -> SyncState:
        """Final metrics and status first: artefacts may need a storage that this machine cannot reach."""
        run_id = _id(state)
        store.send_points(run_id, storable(end.points))
        store.send_tags(run_id, {**clean_tags(end.tags), **nonfinite_tags(end.points)})
        store.close_run(run_id, end.status, end.time)
        state = replace(state, closed=end.digest, reopened=False, done=False).save(self._folder)
        self._send_artifacts(store, run_id)
        return replace(state, done=True).save(self._folder)

    def _send_artifacts(self, store: Store, run_id: str) -> None:
        for name in self.tracked.texts():
            if (path := self._folder / name).exists():  # as text, so that no address in it carries a password
                store.send_text(run_id, mask(path.read_text(encoding="utf-8")), name)
        if (self._folder / METRICS).exists():
            store.send_file(run_id, self._folder / METRICS)
        with tempfile.TemporaryDirectory() as out:
            for plot in self.tracked.plots(Path(out)):
                store.send_file(run_id, plot, "plots")


class Busy(Exception):
    """Another process is sending the same run."""


def summarise(upload: Upload, error: str | None) -> Summary:
    """What is delivered, from the folders alone; starts nothing and asks nobody."""
    uri, head = mask(upload.uri), tracked(upload.folder)
    below = [tracked(folder) for folder in head.children()]
    runs = below or [head]
    states = {run.folder: _state_at(run.folder, uri) for run in (head, *below)}
    pending = sum(unsent(run.folder, states[run.folder]) for run in runs)
    begun = [states[run.folder] for run in (head, *below) if run.started()]
    known = [state for state in states.values() if state and state.experiment_id]
    parent = states[head.folder] if below or head.is_parent else None
    return Summary(
        delivered=error is None and not pending and all(state and state.done for state in begun),
        pending=pending,
        uri=uri,
        experiment_id=known[0].experiment_id if known else None,
        parent_run_id=parent.run_id if parent else None,
        run_ids=tuple(state.run_id for run in runs if (state := states[run.folder]) and state.run_id),
        error=error,
    )


def _state_at(folder: Path, uri: str) -> SyncState | None:
    """A folder's state with this store."""
    found = SyncState.load(folder)
    return found if found and found.uri == uri else None


def _is_news(state: SyncState, end: Ending, final: bool) -> bool:
    """Whether MLflow has to be told this end: not twice, and not that of an attempt before the one that goes on."""
    return state.closed != end.digest or (not state.done and (final or not state.reopened))


def _id(state: SyncState) -> str:
    assert state.run_id is not None, "attached before anything is sent"
    return state.run_id


def _reason(error: BaseException) -> str:
    """An exception as one line without credentials."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = mask(lines[0] if lines else "")[:400]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _listen(asked: threading.Event) -> None:
    """Wait for the driver's word or its end, then allow so many seconds for the rest."""
    words = sys.stdin.readline().split()
    seconds = float(words[1]) if words[:1] == ["close"] else _ORPHAN_SECONDS
    limit = threading.Timer(seconds, os._exit, (1,))
    limit.daemon = True
    limit.start()
    asked.set()


def _main() -> None:
    upload = Upload.model_validate_json(sys.stdin.readline())
    answer, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not the answer
    os.nice(5)
    closing, uploader = threading.Event(), Uploader(upload)
    threading.Thread(target=_listen, args=(closing,), daemon=True).start()
    final = closing.wait(0)
    while True:
        error = uploader.look(final=final)
        if final:
            break
        final = closing.wait(upload.retry_s if error else upload.poll_s)
    print(summarise(upload, error).model_dump_json(), file=answer, flush=True)
    os._exit(0)  # MLflow's threads have nothing left to do


if __name__ == "__main__":
    _main()

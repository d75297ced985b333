"""Sends a folder to MLflow while it grows: the work of `subquad sync FOLDER --follow`.

It is a process of its own beside the driver, which ends when its standard input does. So importing
MLflow and talking to a database never hold the interpreter that trains, no connection is open when
data loaders fork, and it can be stopped. What matters is in each folder's mlflow.json, so any
process can go on where another one ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from subquad.addresses import mask
from subquad.disk import hold
from subquad.tracking.address import artifact_folder, check_server
from subquad.tracking.folders import begun, folders_below, parent_of
from subquad.tracking.mirror import Ending, mirror
from subquad.tracking.state import Summary, SyncState, Upload, root_above, summarise
from subquad.tracking.values import clean_params, clean_tags, points_of

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store

_LOCK = ".mlflow.lock"
_LOCK_SECONDS = 5
_BATCH_RECORDS = 500
_POLL_SECONDS = 2.0
_RETRY_SECONDS = 15.0
"""Until a store that did not answer is asked again."""


def follow(upload: Upload, *, rest: float) -> Summary:
    """Send what is new of a folder until standard input ends, then what is left.

    Args:
        rest: most seconds after the end of standard input; then the process is ended.
    """
    ended = threading.Event()
    threading.Thread(target=_await_end, args=(ended, rest), daemon=True).start()
    sending = Sending(upload)
    pause = 0.1
    final = False
    error = None
    with redirect_stdout(sys.stderr):  # what libraries print is no answer
        while not final:
            final = ended.wait(pause)
            error = sending.look(final=final)
            pause = _RETRY_SECONDS if error else _POLL_SECONDS
    signal.setitimer(signal.ITIMER_REAL, 0)
    return summarise(upload, error)


def _await_end(ended: threading.Event, rest: float) -> None:
    """Wait for the end of standard input, of which the driver has the other end.

    The limit is the system's timer, which needs no interpreter: this thread may wait for ever for
    one that is busy in C.
    """
    signal.setitimer(signal.ITIMER_REAL, rest)
    poll = min(_POLL_SECONDS, rest / 2)
    has_ended = False
    while not has_ended:
        readable, _, _ = select.select([0], [], [], poll)
        has_ended = bool(readable) and not os.read(0, 4096)
        signal.setitimer(signal.ITIMER_REAL, rest)
    ended.set()
    signal.setitimer(signal.ITIMER_REAL, rest)


class Sending:
    """Sends a folder, with all runs below it, again and again until it is final. Until then no
    other process sends it.
    """

    def __init__(self, upload: Upload):
        self._upload = upload
        self._lock = FileLock(str(upload.folder / _LOCK), timeout=_LOCK_SECONDS)
        self._store: Store | None = None
        self._open: dict[Path, _Sender] = {}
        self._closed = set[Path]()

    def look(self, *, final: bool) -> str | None:
        """Send what is new; never raises.

        Args:
            final: nothing comes after this look.

        Returns:
            Why something could not be sent, None where all could.
        """
        folder = self._upload.folder
        try:
            hold(folder)
            if not self._lock.is_locked:
                self._lock.acquire()
            return self._look(final)
        except Timeout:
            return f"Busy: {folder}: another process is sending this run"
        except Exception as error:  # whatever a server, a disk or MLflow may raise
            self._store = None
            self._open = {}
            return _reason(error)
        finally:
            if final:
                self._lock.release()

    def _look(self, final: bool) -> str | None:
        head = self._upload.folder
        if self._store is None:
            self._store = _connect(self._upload)
        if not begun(head):
            return None
        above = None
        search = parent_of(head)
        if search:  # of a final study, where it was sent there too
            above = SyncState.of(search, self._upload).run_id
        below = folders_below(head)
        is_new = head not in self._open
        is_growing = below is None and head not in self._closed
        closed = len(self._closed)
        errors = [
            self._send(run, self._sender(head, above).run.id, final)
            for run in below or ()
            if run not in self._closed and begun(run)
        ]
        has_more_ends = len(self._closed) > closed
        if final or is_new or is_growing or has_more_ends:
            errors.append(self._send(head, above, final))
        return next(filter(None, errors), None)

    def _send(self, folder: Path, parent_id: str | None, final: bool) -> str | None:
        """Send one folder. Its trouble does not keep the others back, a server that is gone
        does.
        """
        try:
            if self._sender(folder, parent_id).send(final=final):
                self._closed.add(folder)
        except Exception as error:
            check_server(self._upload.uri)
            self._open.pop(folder, None)
            return _reason(error)
        return None

    def _sender(self, folder: Path, parent_id: str | None) -> _Sender:
        sender = self._open.get(folder)
        if sender is None:
            assert self._store is not None
            sender = _Sender(folder, self._upload, self._store, parent_id)
            self._open[folder] = sender
        return sender


def _connect(upload: Upload) -> Store:
    check_server(upload.uri)
    from subquad.tracking.mlflow import connect

    artifacts = artifact_folder(upload.uri, root_above(upload.folder))
    return connect(upload.uri, upload.experiment, artifacts)


class _Sender:
    """Sends one folder as one MLflow run, which it finds again or makes.

    Attributes:
        run: the MLflow run.
    """

    def __init__(self, folder: Path, upload: Upload, store: Store, parent_id: str | None):
        self._folder = folder
        self._above = {"mlflow.parentRunId": parent_id} if parent_id else {}
        state = SyncState.of(folder, upload)
        run = store.run(state.run_id, state.key)
        if run is None:
            shown = mirror(folder, final=False)
            run = store.create(shown.label, state.key, shown.began)
        if run.id != state.run_id:
            state = state.anew(run.id)
        self.run = run
        self._state = replace(state, experiment_id=store.experiment_id)
        self._state.save(folder)

    def send(self, *, final: bool) -> bool:
        """Send what is new, at the end also artefacts and status.

        Returns:
            whether the MLflow run is closed.
        """
        shown = mirror(self._folder, final=final)
        params, cut = clean_params(shown.params)
        tags = dict(shown.tags)
        for key, value in params.items():
            had = self.run.params.get(key, value)
            if had != value:  # MLflow refuses to change a parameter, so a new value becomes a tag
                tags[f"param_changed.{key}"] = value
        self.run.send(params=params, tags={**clean_tags(tags), **cut, **self._above})
        self.run.uses(shown.data)
        self._send_records()
        end = shown.end
        if end is None:
            self._reopen()
            return False
        if end.digest != self._state.closed:
            self._close(end, shown.files)
        return True

    def _keep(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)
        self._state.save(self._folder)

    def _send_records(self) -> None:
        records, place = self._state.unsent(self._folder)
        for start in range(0, len(records), _BATCH_RECORDS):
            some = records[start : start + _BATCH_RECORDS]
            points = []
            for record in some:
                points += points_of(record)
            self.run.send(points)
            self._state = self._state.after(some)
            self._state.save(self._folder)
        if place.unreadable:
            self.run.send(tags={"subquad.unreadable_record": f"first {place.unreadable[0]}"})
        self._keep(place=place)

    def _reopen(self) -> None:
        """A run that goes on after its end was told."""
        if self.run.status != "RUNNING":
            self.run.reopen()
            self.run.send(tags={"subquad.status": "running"})
            self._keep(closed="")

    def _close(self, end: Ending, files: tuple[str, ...]) -> None:
        """Final metrics and status first: artefacts may need a storage that this machine cannot
        reach.
        """
        self.run.send(end.points, tags=clean_tags(end.tags))
        self.run.close(end.status, end.time)
        for name in files:
            path = self._folder / name
            if path.exists():
                self.run.send_file(path, name)
        self._keep(closed=end.digest)


def _reason(error: BaseException) -> str:
    """An exception as one line without credentials."""
    kind = type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    text = mask(lines[0].strip())[:400]
    return f"{kind}: {text}" if text else kind

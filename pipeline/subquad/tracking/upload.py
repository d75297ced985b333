"""Send folders to MLflow: what the process beside the driver does. It is started by `Publisher` and ends when it does.

A process and not a thread: importing MLflow and talking to a database then never hold the interpreter that trains, no
connection is open when data loaders fork, no environment variable of the user's process changes, and it can be stopped.
What matters is in each folder's mlflow.json, so any process can go on where another one ended.

Standard input: an `Upload` on the first line; then `close SECONDS`, or the end of the stream when the driver died.
Standard output: a `Summary`, once, at the end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from pydantic import BaseModel

from subquad.addresses import mask
from subquad.disk import hold, opened
from subquad.processes import keep_strange_code_out
from subquad.runs import METRICS, TRACKING, read_bytes
from subquad.tracking.address import check_server
from subquad.tracking.folders import Ending, Mirror, begun, folders_below, mirror, parent_of
from subquad.tracking.spool import SyncState
from subquad.tracking.values import clean_params, clean_tags, points_of

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store, StoredRun

_LOCK = ".mlflow.lock"
_LOCK_SECONDS = 5
_BATCH_RECORDS = 500
_ORPHAN_SECONDS = 60.0
_POLL_SECONDS, _RETRY_SECONDS = 2.0, 15.0  # between looks; after one at which a store did not answer


class Upload(BaseModel, frozen=True):
    """What is to be sent, and where to.

    Attributes:
        uri: the MLflow store, absolute, with its credentials.
        experiment: name of the MLflow experiment.
        artifacts: folder for artefacts where the store is a database; None: the server decides.
        folder: a run, or a study or search with all runs below it.
    """

    uri: str
    experiment: str
    artifacts: Path | None
    folder: Path


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
        self._senders: dict[Path, _Sender] = {}

    def look(self, *, final: bool) -> str | None:
        """Send what is new; never raises.

        Returns:
            Why something could not be sent, None where all could.
        """
        folder = self._upload.folder
        try:
            hold(folder)
            with FileLock(str(folder / _LOCK), timeout=_LOCK_SECONDS):
                return self._look(final)
        except Timeout:
            return f"Busy: {folder}: another process is sending this run"
        except Exception as error:  # whatever a server, a disk or MLflow may raise must not reach training
            self._store, self._senders = None, {}
            return _reason(error)

    def _look(self, final: bool) -> str | None:
        head = self._upload.folder
        self._remember(head)
        if self._store is None:
            self._store = _connect(self._upload)
        if not begun(head):
            return None
        above, below = self._run_above(), [run for run in folders_below(head) or () if begun(run)]
        head_id = self._sender(head).attached(self._store).id if below else None
        errors, news = list[str](), False
        for folder in (*below, head):
            try:
                whole = folder == head
                parent_id, anyway = (above, final or news) if whole else (head_id, False)
                news |= self._sender(folder).send(self._store, parent_id, final=final, anyway=anyway)
            except Exception as error:  # one run's trouble does not keep the others back, a server that is gone does
                check_server(self._upload.uri)
                del self._senders[folder]
                errors.append(_reason(error))
        return next(iter(errors), None)

    def _remember(self, head: Path) -> None:
        """Write down where the folder is sent to, so that any process can do it later.

        A run that another store has stays with that one until this one has answered.
        """
        old = SyncState.load(head)
        state = SyncState.of(old, mask(self._upload.uri), self._upload.experiment)
        if state != old and (old is None or old.run_id is None):
            state.save(head)

    def _sender(self, folder: Path) -> _Sender:
        return self._senders.setdefault(folder, _Sender(folder, self._upload))

    def _run_above(self) -> str | None:
        """MLflow's id of the search that a final study belongs to, where it was sent there too."""
        parent = parent_of(self._upload.folder)
        above = _state_at(parent, mask(self._upload.uri)) if parent else None
        return above.run_id if above and above.experiment == self._upload.experiment else None


def _connect(upload: Upload) -> Store:
    check_server(upload.uri)
    from subquad.tracking.mlflow import connect

    return connect(upload.uri, upload.experiment, upload.artifacts)


class _Sender:
    """Sends one folder as one MLflow run; forgotten after any error, as what counts is in mlflow.json."""

    def __init__(self, folder: Path, upload: Upload):
        self._folder, self._uri, self._experiment = folder, mask(upload.uri), upload.experiment
        self._run: StoredRun | None = None
        self._seen: dict[str, tuple[int, int]] = {}
        self._closed = False

    def attached(self, store: Store) -> StoredRun:
        """The folder's MLflow run, found again or made."""
        if self._run is None:
            state, saved = self._state(), SyncState.load(self._folder)
            self._run = store.run(state.run_id, state.key)
            if self._run is None:
                shown = mirror(self._folder, final=False)
                self._run = store.create(shown.label, state.key, shown.began)
            if self._run.id != state.run_id:
                state = state.anew(self._run.id)
            state = replace(state, experiment_id=store.experiment_id)
            if state != saved:
                state.save(self._folder)
        return self._run

    def send(self, store: Store, parent_id: str | None, *, final: bool, anyway: bool) -> bool:
        """Send what is new, at the end also artefacts and status. Returns whether it had to be looked at.

        Args:
            anyway: look also where no file of the folder itself has changed.
        """
        seen = _files(self._folder)
        if seen == self._seen and not anyway and (self._closed or not final):
            return False
        run, state = self.attached(store), self._state()
        shown = mirror(self._folder, final=final)
        _describe(run, shown, parent_id)
        run.uses(shown.data)
        state = self._send_records(run, state)
        if shown.end is None and run.status != "RUNNING":  # a run that goes on after its end was told
            run.reopen()
            run.send(tags={"subquad.status": "running"})
            state = replace(state, closed="").save(self._folder)
        if shown.end and shown.end.digest != state.closed:
            self._close(run, shown, shown.end)
            state = replace(state, closed=shown.end.digest).save(self._folder)
        self._seen, self._closed = seen, bool(state.closed)
        return True

    def _state(self) -> SyncState:
        return SyncState.of(SyncState.load(self._folder), self._uri, self._experiment)

    def _send_records(self, run: StoredRun, state: SyncState) -> SyncState:
        records, place = state.unsent(self._folder)
        for start in range(0, len(records), _BATCH_RECORDS):
            some = records[start : start + _BATCH_RECORDS]
            run.send([point for record in some for point in points_of(record)])
            state = state.after(some).save(self._folder)
        if place.unreadable:
            run.send(tags={"subquad.unreadable_record": f"first in line {place.unreadable} of {METRICS}"})
        return state if place == state.place else replace(state, place=place).save(self._folder)

    def _close(self, run: StoredRun, shown: Mirror, end: Ending) -> None:
        """Final metrics and status first: artefacts may need a storage that this machine cannot reach."""
        run.send(end.points)
        run.close(end.status, end.time)
        for name in shown.texts:
            if (path := self._folder / name).exists():  # as text, so that no address in it carries a password
                run.client.log_text(run.id, mask(read_bytes(path).decode()), name)
        with tempfile.TemporaryDirectory() as out:
            for plot in shown.plots(Path(out)):
                _log_file(run, plot, "plots")
        if (self._folder / METRICS).exists():
            _log_file(run, self._folder / METRICS)


def _log_file(run: StoredRun, path: Path, above: str | None = None) -> None:
    """Send a copy of a file: MLflow would follow a link in its place."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, path.name)
        with opened(path) as source, opened(copy, "xb") as target:
            shutil.copyfileobj(source, target)
        run.client.log_artifact(run.id, str(copy), above)


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file, but for our own and those that are just being written."""
    found = {}
    for path in folder.glob("[!.]*"):
        with contextlib.suppress(FileNotFoundError):  # a run that starts anew removes its old result
            file = path.stat()
            found[path.name] = file.st_size, file.st_mtime_ns
    found.pop(TRACKING, None)
    return found


def _describe(run: StoredRun, shown: Mirror, parent_id: str | None) -> None:
    """Send parameters and tags. MLflow refuses to change a parameter: a new value becomes a tag."""
    params, cut = clean_params(shown.params)
    changed = {key: value for key, value in params.items() if run.params.get(key, value) != value}
    tags = {name: str(value) for name, value in shown.tags.items() if value is not None}
    tags |= {f"param_changed.{key}": value for key, value in changed.items()}
    tags |= shown.end.tags if shown.end else {}
    above = {"mlflow.parentRunId": parent_id} if parent_id else {}
    run.send(params=params, tags={**clean_tags(tags), **cut, **above})


def summarise(upload: Upload, error: str | None) -> Summary:
    """What is delivered, from the folders alone; starts nothing and asks nobody."""
    head, below, uri = upload.folder, folders_below(upload.folder), mask(upload.uri)
    states = {folder: _state_at(folder, uri) for folder in (head, *(below or ()))}
    sent = {folder: state for folder, state in states.items() if state}
    nothing = SyncState(uri=uri, experiment=upload.experiment)
    pending = sum(len(sent.get(folder, nothing).unsent(folder)[0]) for folder in below or [head])
    closed = all(folder in sent and sent[folder].closed for folder in states if begun(folder))
    return Summary(
        delivered=error is None and not pending and closed,
        pending=pending,
        uri=uri,
        experiment_id=next((state.experiment_id for state in sent.values() if state.experiment_id), None),
        parent_run_id=sent[head].run_id if below is not None and head in sent else None,
        run_ids=tuple(run_id for run in below or [head] if run in sent and (run_id := sent[run].run_id)),
        error=error,
    )


def _state_at(folder: Path, uri: str) -> SyncState | None:
    """A folder's state with this store."""
    found = SyncState.load(folder)
    return found if found and found.uri == uri else None


def _reason(error: BaseException) -> str:
    """An exception as one line without credentials."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = mask(lines[0] if lines else "")[:400]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _listen(asked: threading.Event, answer: int) -> None:
    """Wait for the driver's word or its end, then allow so many seconds for the rest.

    A driver that has said `close` waits for the answer, so without it nothing is left to do. The limit is
    faulthandler's, which needs no interpreter: this thread may wait for ever for one that is busy in C.

    Args:
        answer: what the driver reads.
    """
    while not select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:
        faulthandler.dump_traceback_later(_ORPHAN_SECONDS, exit=True)
    words = sys.stdin.readline().split()
    asked.set()
    faulthandler.dump_traceback_later(_ORPHAN_SECONDS, exit=True)
    if words[:1] != ["close"]:
        return
    reader = select.poll()
    reader.register(answer, 0)  # tells of its end alone
    end = time.monotonic() + float(words[1])
    while (left := end - time.monotonic()) > 0 and not reader.poll(1000 * min(_POLL_SECONDS, left)):
        faulthandler.dump_traceback_later(_ORPHAN_SECONDS, exit=True)
    os._exit(1)


def _main() -> None:
    keep_strange_code_out()
    upload = Upload.model_validate_json(sys.stdin.readline())
    answer, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not the answer
    os.nice(5)
    closing, uploader = threading.Event(), Uploader(upload)
    faulthandler.dump_traceback_later(_ORPHAN_SECONDS, exit=True)
    threading.Thread(target=_listen, args=(closing, answer.fileno()), daemon=True).start()
    final = closing.wait(0)
    while True:
        error = uploader.look(final=final)
        if final:
            break
        final = closing.wait(_RETRY_SECONDS if error else _POLL_SECONDS)
    print(summarise(upload, error).model_dump_json(), file=answer, flush=True)
    os._exit(0)  # MLflow's threads have nothing left to do


if __name__ == "__main__":
    _main()

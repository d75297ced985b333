"""Brings a folder to MLflow: a process of its own, which imports MLflow. A driver starts it beside
training, `subquad sync` for a folder that is there.

The folder is the truth, and MLflow knows what it has. So nothing is written down here: killed
anywhere and started again it ends the same.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from subquad.addresses import mask
from subquad.disk import hold
from subquad.errors import SubquadError
from subquad.records import Place
from subquad.runs import METRICS
from subquad.tracking.address import VARIABLE, artifact_folder
from subquad.tracking.folders import begun, key_of, parts_in, root_above
from subquad.tracking.mirror import about, ending, points_after
from subquad.tracking.publisher import Summary, Upload
from subquad.tracking.values import clean_params, clean_tags

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store, StoredRun

_LOCK = ".mlflow.lock"
_LOCK_SECONDS = 5
_POLL_SECONDS = 2.0
_RETRY_SECONDS = 15.0
"""Until a store that did not answer is asked again."""
_STUCK_SECONDS = 60
"""That one run may take; then the system ends this process, whatever it is at."""


def run_beside() -> None:
    """Send the folder that the command line names, and say what came of it."""
    folder, experiment, *idle = sys.argv[1:]
    if idle and hasattr(os, "SCHED_IDLE"):  # a nice value would count within this session alone
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with redirect_stdout(sys.stderr):  # what libraries print is no answer
        summary = follow(Upload(Path(folder), os.environ[VARIABLE], experiment))
    print(summary.model_dump_json())


def follow(upload: Upload) -> Summary:
    """Send what is new of a folder until standard input ends, then what is left. Nothing is done
    before there is a record: the first steps have the machine for themselves.
    """
    importer = Importer(upload)
    pause = 0.0
    while not select.select([0], [], [], pause)[0]:
        pause = _POLL_SECONDS
        if importer.has_looked or any(upload.folder.rglob(METRICS)):
            summary = importer.look(final=False)
            pause = _RETRY_SECONDS if summary.error else _POLL_SECONDS
    return importer.look(final=True)


class Importer:
    """Sends a folder, with all runs below it, again and again until it is final. Until then no
    other process sends it.

    Attributes:
        has_looked: whether it began.
    """

    def __init__(self, upload: Upload):
        self.has_looked = False
        self._upload = upload
        self._lock = FileLock(upload.folder / _LOCK, timeout=_LOCK_SECONDS)
        self._key = key_of(upload.folder)
        self._store: Store | None = None
        self._stored: dict[str, StoredRun] = {}
        self._senders: dict[Path, _Sender] = {}
        self._closed = set[Path]()
        self._runs: dict[Path, str] = {}
        self._errors: list[str] = []

    def look(self, *, final: bool) -> Summary:
        """Send what is new; never raises.

        Args:
            final: nothing comes after this look.
        """
        head = self._upload.folder
        self.has_looked = True
        self._errors = []
        try:
            signal.alarm(_STUCK_SECONDS)
            hold(head)
            if not self._lock.is_locked:
                self._lock.acquire()
            if self._store is None:
                self._connect()
            self._bring(head, {}, final)
        except Timeout:
            self._errors = [f"Busy: {head}: another process is sending this run"]
        except Exception as error:  # whatever a server, a disk or MLflow may raise
            self._errors.append(_reason(error))
        finally:
            signal.alarm(0)
        if final:
            self._lock.release()
        if self._errors:  # then MLflow is asked anew what it has
            self._store = None
        return self._summary()

    def _connect(self) -> None:
        upload = self._upload
        from subquad.tracking.mlflow import connect

        artifacts = artifact_folder(upload.uri, root_above(upload.folder))
        self._store = connect(upload.uri, upload.experiment, artifacts)
        self._stored = self._store.runs(self._key)
        self._senders = {}

    def _bring(self, folder: Path, above: dict[str, str], final: bool) -> None:
        """Send one folder, and what is below it. A parent is looked at where one of those ended."""
        signal.alarm(_STUCK_SECONDS)
        sender = self._senders.get(folder)
        is_new = sender is None
        if sender is None:
            sender = self._senders[folder] = _Sender(folder, self._run_of(folder))
            sender.begin(above)
        closed = len(self._closed)
        below = parts_in(folder)
        for child in below or ():
            if child in self._closed or not begun(child):
                continue
            try:
                self._bring(child, {"mlflow.parentRunId": sender.run.id}, final)
            except (OSError, ValueError, SubquadError) as error:  # of a folder, not of the store
                self._errors.append(_reason(error))
        if below is None:
            self._runs[folder] = sender.run.id
            if sender.send(final=final):
                self._closed.add(folder)
        elif final or is_new or len(self._closed) > closed:
            sender.send(final=final)

    def _run_of(self, folder: Path) -> StoredRun:
        """The run of a folder, found again or made."""
        assert self._store is not None
        key = f"{self._key}/{folder.relative_to(self._upload.folder)}"
        found = self._stored.get(key)
        if found is None:
            what = about(folder)
            found = self._store.create(what.label, key, what.began)
        return found

    def _summary(self) -> Summary:
        head = self._senders.get(self._upload.folder)
        is_parent = head is not None and self._upload.folder not in self._runs
        return Summary(
            delivered=not self._errors,
            uri=mask(self._upload.uri),
            experiment_id=self._store.experiment_id if self._store else None,
            parent_run_id=head.run.id if head and is_parent else None,
            run_ids=tuple(self._runs[folder] for folder in sorted(self._runs)),
            error=next(iter(self._errors), None),
        )


class _Sender:
    """Sends one folder as one MLflow run.

    Attributes:
        run: the MLflow run.
    """

    def __init__(self, folder: Path, run: StoredRun):
        self._folder = folder
        self._place = Place()
        self.run = run

    def begin(self, above: dict[str, str]) -> None:
        """Send what it is."""
        what = about(self._folder)
        params, cut = clean_params(what.params)
        self.run.describe(params, {**clean_tags(what.tags), **cut, **above})
        self.run.uses(what.data)

    def send(self, *, final: bool) -> bool:
        """Send what is new, at the end also artefacts and status.

        Returns:
            whether it ended.
        """
        new, self._place = points_after(self._folder, self._place)
        self.run.add(new)
        for line in self._place.unreadable[:1]:
            self.run.tag({"subquad.unreadable_record": f"first {line}"})
        end = ending(self._folder, final=final)
        if end is None:
            self.run.reopen()
            return False
        self.run.close(self._folder, end)
        return True


def _reason(error: BaseException) -> str:
    """An exception as one line without credentials."""
    kind = type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    text = mask(lines[0].strip())[:400]
    return f"{kind}: {text}" if text else kind


if __name__ == "__main__":
    run_beside()

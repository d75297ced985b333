"""Brings a folder to MLflow: a process of its own, which imports MLflow. A driver starts it beside
training, `subquad sync` for a folder that is there.

The folder is the truth, and MLflow knows what it has. So nothing is written down here: killed
anywhere and started again it ends the same.
"""

from __future__ import annotations

import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from subquad.addresses import mask
from subquad.errors import SubquadError, by_class, escaped
from subquad.record.metrics import Place
from subquad.security.disk import hold
from subquad.tracking.address import artifact_folder
from subquad.tracking.folders import SENDING, begun, key_of, parts_in, root_above
from subquad.tracking.mirror import about, ending, points_after
from subquad.tracking.publisher import Summary, Upload
from subquad.tracking.values import Values

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store, StoredRun

_LOCK_SECONDS = 5
_POLL_SECONDS = 2.0
_RETRY_SECONDS = 15.0
"""Until a store that did not answer is asked again."""
_STUCK_SECONDS = 600
"""That one run may take; then the system ends this process, whatever it is at."""


def follow(upload: Upload) -> Summary:
    """Send what is new of a folder until standard input ends, then what is left."""
    importer = Importer(upload)
    pause = 0.0
    while not select.select([0], [], [], pause)[0]:
        summary = importer.look(final=False)
        pause = _RETRY_SECONDS if summary.error else _POLL_SECONDS
    return importer.look(final=True)


class Importer:
    """Sends a folder, with all runs below it, again and again until it is final. Until then no
    other process sends it.
    """

    def __init__(self, upload: Upload):
        self._upload = upload
        self._lock = FileLock(upload.folder / SENDING, timeout=_LOCK_SECONDS)
        self._key = key_of(upload.folder)
        self._store: Store | None = None
        self._runs: dict[Path, StoredRun] = {}
        self._places: dict[Path, Place] = {}
        self._leaves = set[Path]()
        self._closed = set[Path]()
        self._errors: list[str] = []

    def look(self, *, final: bool) -> Summary:
        """Send what is new; never raises.

        Args:
            final: nothing comes after this look.
        """
        head = self._upload.folder
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
        known = self._store.runs(self._key).items()
        self._runs = {upload.folder / key.partition("/")[2]: run for key, run in known}
        self._places = {}

    def _bring(self, folder: Path, above: Values, final: bool) -> None:
        """Send one folder, and what is below it. A parent is looked at where one of those ended."""
        signal.alarm(_STUCK_SECONDS)
        is_new = folder not in self._places
        if is_new:
            self._begin(folder, above)
        closed = len(self._closed)
        below = parts_in(folder)
        for part in below or ():
            if part in self._closed or not begun(part):
                continue
            try:
                self._bring(part, {"mlflow.parentRunId": self._runs[folder].id}, final)
            except (OSError, ValueError, SubquadError) as error:  # of a folder, not of the store
                self._errors.append(_reason(error))
        if below is None:
            self._leaves.add(folder)
            if self._send(folder, final):
                self._closed.add(folder)
        elif final or is_new or len(self._closed) > closed:
            self._send(folder, final)

    def _begin(self, folder: Path, above: Values) -> None:
        """Find the run of a folder again or make it, and send what it is."""
        what = about(folder)
        if folder not in self._runs:
            assert self._store is not None
            key = f"{self._key}/{folder.relative_to(self._upload.folder)}"
            self._runs[folder] = self._store.create(what.label, key, what.began)
        self._runs[folder].describe(what, above)
        self._places[folder] = Place()

    def _send(self, folder: Path, final: bool) -> bool:
        """Send what is new, at the end also artefacts and status.

        Returns:
            whether it ended.
        """
        run = self._runs[folder]
        new, place = points_after(folder, self._places[folder])
        run.add(new)
        self._places[folder] = place
        for line in place.unreadable[:1]:
            run.tag({"subquad.unreadable_record": f"first {line}"})
        end = ending(folder, final=final)
        if end is None:
            run.reopen()
            return False
        run.close(folder, end)
        return True

    def _summary(self) -> Summary:
        head = self._upload.folder
        ids = {folder: self._runs[folder].id for folder in sorted(self._runs)}
        return Summary(
            delivered=not self._errors,
            uri=mask(self._upload.uri),
            experiment_id=self._store.experiment_id if self._store else None,
            parent_run_id=None if head in self._leaves else ids.get(head),
            run_ids=tuple(ids[folder] for folder in ids if folder in self._leaves),
            error=next(iter(self._errors), None),
        )


def _reason(error: BaseException) -> str:
    """An exception as one line without credentials."""
    return escaped(mask(by_class(error)))

"""Brings a folder to MLflow, in a process of its own: `python -m subquad.tracking.importing FOLDER
EXPERIMENT`, with the store in MLFLOW_TRACKING_URI. A driver starts it beside training,
`subquad sync` for a folder that is there. It prints what came of it once standard input has ended.

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
from subquad.errors import SubquadError, by_class, escaped
from subquad.record.metrics import Place
from subquad.record.names import METRICS
from subquad.security.disk import hold
from subquad.tracking.address import VARIABLE
from subquad.tracking.mirror import SENDING, Values, about, parts_in, points_after
from subquad.tracking.publisher import Publisher, Summary

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store

_LOCK_SECONDS = 5
_POLL_SECONDS = 2.0
_RETRY_SECONDS = 15.0
"""Until a store that did not answer is asked again."""
_STUCK_SECONDS = 600
"""That one run may take; then the system ends this process, whatever it is at."""


def follow(publisher: Publisher) -> Summary:
    """Send what is new of a folder until standard input ends, then what is left.

    Until there is a record nothing is done, so the first steps have the machine for themselves.
    """
    importer = Importer(publisher)
    pause = 0.0
    while not select.select([0], [], [], pause)[0]:
        pause = _POLL_SECONDS
        if any(publisher.folder.rglob(METRICS)) and importer.look(final=False).error:
            pause = _RETRY_SECONDS
    return importer.look(final=True)


class Importer:
    """Sends a folder, with all runs below it, again and again until it is final. Until then no
    other process sends it.
    """

    def __init__(self, publisher: Publisher):
        self._publisher = publisher
        self._lock = FileLock(publisher.folder / SENDING, timeout=_LOCK_SECONDS)
        self._store: Store | None = None
        self._ended = set[Path]()
        self._error: str | None = None

    def look(self, *, final: bool) -> Summary:
        """Send what is new; never raises.

        Args:
            final: nothing comes after this look.
        """
        folder = self._publisher.folder
        self._error = None
        signal.alarm(_STUCK_SECONDS)
        try:
            self._bring(folder, {}, self._store or self._connect(), final)
        except Timeout:
            self._error = f"Busy: {folder}: another process is sending this run"
        except Exception as error:  # whatever a server, a disk or MLflow may raise
            self._fail(error)
        signal.alarm(0)
        if final:
            self._lock.release(force=True)
        run = self._store and self._store.runs.get(folder)
        if self._error:  # then MLflow is asked anew what it has
            self._store = None
        return Summary(
            delivered=not self._error,
            uri=mask(self._publisher.uri),
            run_id=run.id if run else "",
            error=self._error,
        )

    def _fail(self, error: Exception) -> None:
        """Keep the first error, as one line without credentials."""
        self._error = self._error or escaped(mask(by_class(error)))

    def _connect(self) -> Store:
        from subquad.tracking.mlflow import Store

        hold(self._publisher.folder)
        self._lock.acquire()
        self._store = Store(self._publisher)
        return self._store

    def _bring(self, folder: Path, above: Values, store: Store, final: bool) -> None:
        """Send what is new of one folder and of what is below it."""
        signal.alarm(_STUCK_SECONDS)
        what = about(folder, final=final)
        run = store.runs.get(folder)
        points, place = points_after(folder, run.place if run else Place())
        if run is None:
            began = (
                points[0].time_ms / 1000
                if points
                else min(path.stat().st_mtime for path in folder.iterdir())
            )
            run = store.create(folder, what.label, began, above)
        below = parts_in(folder, self._ended)
        for part in below:
            if part not in self._ended:
                try:
                    self._bring(part, {"mlflow.parentRunId": run.id}, store, final)
                except (OSError, ValueError, SubquadError) as error:  # of a folder, not the store
                    self._fail(error)
        store.bring(run, folder, what, points)
        run.place = place
        if what.status != "RUNNING" and not below:
            self._ended.add(folder)


def _main() -> None:
    folder, experiment = sys.argv[1:]
    with redirect_stdout(sys.stderr):  # what libraries print is no answer
        summary = follow(Publisher(Path(folder), os.environ[VARIABLE], experiment))
    print(summary.model_dump_json())


if __name__ == "__main__":
    _main()

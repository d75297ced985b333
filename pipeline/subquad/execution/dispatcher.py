"""Answers to workers, who ask from their processes: for the next run, and whether a trial shall
end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from subquad.execution.executor import Source
from subquad.execution.queue import END, Done, RunQueue, WorkerGroup
from subquad.experiment import Run
from subquad.record.files import write_text

Answer = TypeVar("Answer")


class Dispatcher:
    """Answers, in the driver's process, one question at a time.

    After an error workers save and stop, and no run is given out; the driver raises it when they
    have ended.

    Args:
        queue: has the runs.
        source: of the queue.
        stop: file that stops the workers.
        values: a run's plain values, its folder as workers reach it.

    Attributes:
        raised: the error.
    """

    def __init__(
        self,
        queue: RunQueue,
        source: Source,
        stop: Path,
        values: Callable[[Run], dict[str, Any]] = Run.as_values,
    ):
        self._queue = queue
        self._source = source
        self._stop = stop
        self._values = values
        self._lock = Lock()
        self.raised: Exception | None = None

    @property
    def idle(self) -> bool:
        """Whether there is no worker group."""
        return self._queue.idle

    def open(self, name: str) -> WorkerGroup | None:
        """See `RunQueue`."""
        return self._try(self._queue.open, name)

    def close(self, name: str, how: str, **more: Any) -> None:
        """See `RunQueue`."""
        self._try(self._queue.close, name, how, **more)

    def next_run(self, name: str, done: Done | None) -> dict[str, Any] | str:
        """What a worker group does next: a run's plain values, or see `RunQueue.ask`."""
        answer = self._try(self._queue.ask, name, done)
        if isinstance(answer, Run):
            return self._values(answer)
        return answer or END

    def fetch(self, folder: Path | None = None) -> None:
        """See `RunQueue`."""
        self._try(self._queue.fetch, folder)

    def prune_reason(self, folder: Path) -> str:
        """Why a trial shall end, see `engine.loop.Signals`."""
        self.fetch(folder)
        return self._try(self._source.prune_reason, folder) or ""

    def give_up(self, error: Exception) -> None:
        """Let the workers save and stop, because of an error."""
        self.raised = self.raised or error
        self._queue.stop()
        write_text(self._stop, str(int(signal.SIGTERM)))

    def _try(self, call: Callable[..., Answer], *given: Any, **more: Any) -> Answer | None:
        with self._lock:
            try:
                return call(*given, **more)
            except Exception as error:
                self.give_up(error)
                return None

"""Our search as Ray Tune's searcher: Tune is given trials, and told where they end; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from subquad.ray.queue import TrialQueue


class QueueSearcher(Searcher):
    """Asks a queue of trials.

    Args:
        queue: gives out trials.
        stopped: whether no more shall start.
        broken: told of an error in the search, after which no more start either; Tune would wrap it in its own.
    """

    def __init__(self, queue: TrialQueue, stopped: Callable[[], bool], broken: Callable[[Exception], None]):
        super().__init__()
        self._queue, self._stopped, self._broken = queue, stopped, broken

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        return Searcher, ()  # Tune saves it with its settings, for a resume of its own that never comes

    def suggest(self, trial_id: str) -> Any:
        """A trial's plain values; None: none now; FINISHED: never again."""
        try:
            if self._stopped():
                return Searcher.FINISHED
            if run := self._queue.start(trial_id):
                return {"run": run.plain()}
            return Searcher.FINISHED if self._queue.idle else None
        except Exception as error:
            self._broken(error)
            return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Give the trial back, with what its process said; nothing where that died."""
        try:
            self._queue.back(trial_id, None if error or not result or "error" not in result else result)
        except Exception as raised:
            self._broken(raised)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the search's folder remembers."""

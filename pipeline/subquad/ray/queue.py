"""Several trials at once: which one starts, which one goes again after its process died."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path

import subquad.errors
from subquad.drivers.executor import Ended, NextRun
from subquad.drivers.preflight import Room
from subquad.engine import attempts
from subquad.engine.group import Group
from subquad.engine.result import fail
from subquad.errors import ConfigError, RunError, SubquadError
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.runs import read_result

ROUNDING = 1e-6
"""Shares of a device are sums of fractions."""


_Shares = dict[int, float]
"""What a trial has of each GPU, by the GPU's number."""


class TrialQueue:
    """Gives out trials as long as CPUs and GPUs last, and takes them back.

    No trial is drawn before there is room for one like the trial before it: a point is suggested from what is known
    when it starts. One that needs more waits until there is room.

    Args:
        next_run: see `Executor.search`.
        ended: see `Executor.search`.
        room: what trials may use together.
    """

    def __init__(self, next_run: NextRun, ended: Ended, room: Room):
        self._next, self._ended = next_run, ended
        self._all = room
        self._waiting: deque[Run] = deque()
        self._running: dict[str, tuple[Run, int, _Shares]] = {}
        """Each with how often it had been started before, and its GPUs."""
        self._unbegun: Counter[Path] = Counter()
        self._like: Resources | None = None
        self._asked = False
        """No further trial was given, and none has ended since."""

    def start(self, key: str) -> Run | None:
        """A trial to start now, under the caller's name for it; None: no room, or none left."""
        if not self._room(self._like) or not self.more() or not self._room(_scale(self._waiting[0])):
            return None
        run = self._waiting.popleft()
        self._running[key] = run, len(attempts.read(run.folder)), self._shares(_scale(run)) or {}
        return run

    def more(self) -> bool:
        """Whether a trial waits; where none does, the next one is drawn."""
        while not self._waiting and not self._asked:
            run = self._next()
            self._asked = run is None
            if run is not None and self._possible(run):
                self._like = _scale(run)
                self._waiting.append(run)
        return bool(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no trial runs."""
        return not self._running

    def back(self, key: str, said: Mapping[str, str] | None) -> None:
        """Take a trial back.

        Args:
            key: as it was started.
            said: "error", "" where it ended or was stopped, and "kind", the error's class; None: its process died.

        Raises:
            RunError: another process writes this trial, or the disk is full.
        """
        run, starts, _ = self._running.pop(key)
        self._asked = False
        if said and said["error"]:
            kind: type[Exception] = getattr(subquad.errors, said["kind"], SubquadError)
            if issubclass(kind, RunError):
                raise kind(said["error"])
            fail(run, Group(), said["error"])
        if read_result(run.folder) is not None:
            self._ended(run)
        elif said is None:
            self._again(run, starts)

    def all_back(self) -> None:
        """Take all trials back after all processes died."""
        for key in list(self._running):
            self.back(key, None)

    def _again(self, run: Run, starts: int) -> None:
        """The trial counts its attempts itself (resources.max_failures); counted here is what dies before it begins."""
        folder, limit = run.folder, _scale(run).max_failures
        begun = len(attempts.read(folder)) > starts
        deaths = self._unbegun[folder] = 0 if begun else self._unbegun[folder] + 1
        if deaths <= limit:
            self._waiting.appendleft(run)
        else:
            self._fail(run, f"its process died {deaths} times before it could begin (resources.max_failures: {limit})")

    def _fail(self, run: Run, reason: str) -> None:
        fail(run, Group(), reason)
        self._ended(run)

    def _possible(self, run: Run) -> bool:
        try:
            self._all.check(_scale(run))
        except ConfigError as error:
            self._fail(run, str(error))
            return False
        return True

    def _room(self, wanted: Resources | None) -> bool:
        if wanted is None or self.idle:
            return True
        scales = [wanted, *(_scale(run) for run, _, _ in self._running.values())]
        cpus = sum(one.most * one.cpus_per_worker for one in scales)
        return cpus <= self._all.cpus + ROUNDING and self._shares(wanted) is not None

    def _shares(self, wanted: Resources) -> _Shares | None:
        """Where Ray finds its GPUs: whole ones, or a share of one, the fullest that has it; None: nowhere now."""
        free = [1.0 - sum(one.get(gpu, 0.0) for _, _, one in self._running.values()) for gpu in range(self._all.gpus)]
        each, count = wanted.gpus_per_worker, max(1, round(wanted.most * wanted.gpus_per_worker))
        roomy = sorted((left, gpu) for gpu, left in enumerate(free) if left >= min(each, 1.0) - ROUNDING)
        if each and len(roomy) < count:
            return None
        return {gpu: min(each, 1.0) for _, gpu in roomy[:count]} if each else {}


def _scale(run: Run) -> Resources:
    return run.experiment.resources

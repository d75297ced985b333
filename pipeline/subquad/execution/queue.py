"""Which run starts next, and where: groups of workers take one run after the other, side by side as
there is room for them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import subquad.errors
from subquad.engine.group import Group
from subquad.engine.result import fail
from subquad.errors import ConfigError, RunError, SubquadError, TrainingFailed
from subquad.execution.executor import Source
from subquad.execution.signals import Signum
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.preparation.preflight import Room
from subquad.record.files import find_file
from subquad.record.metrics import read_attempts
from subquad.record.models import Result
from subquad.record.names import ERROR
from subquad.security.disk import opened

ROUNDING = 1e-6
"""Shares of a device are sums of fractions."""

WAIT, END = "wait", "end"
"""What a worker group is told where it gets no run: it asks again soon, or its processes end."""


@dataclass(frozen=True)
class Done:
    """What became of a worker group's run.

    Attributes:
        error: what was wrong with it, "" where nothing was.
        kind: the error's class.
        stopped: it was asked to stop, and can go on.
    """

    error: str = ""
    kind: str = ""
    stopped: bool = False


@dataclass
class WorkerGroup:
    """Workers that take one run after the other.

    Attributes:
        resources: of each of its runs.
        gpus: what it has of each GPU, by the GPU's number.
        run: what it does, or will do first.
        starts: how often that had been started before.
        begun: it has asked for the run.
    """

    resources: Resources
    gpus: dict[int, float]
    run: Run | None
    starts: int
    begun: bool = False


class RunQueue:
    """Gives runs to worker groups as long as CPUs and GPUs last, and takes them back.

    No run is drawn before there is room for one like the run before it: a search suggests a point
    from what is known when it starts. One that needs more waits until there is room. The callbacks
    of the source are called here, one at a time.

    Args:
        source: of the runs.
        check: refuses workers that never fit.
        room: what worker groups for such runs may use together now.
        jobs: worker groups at once; None: as many as fit.
        signum: no run starts after a signal.
        fetch: brings a run's folder in line with what its workers wrote elsewhere.
    """

    def __init__(
        self,
        source: Source,
        check: Callable[[Resources], None],
        room: Callable[[Resources], Room],
        jobs: int | None = None,
        signum: Signum = lambda: 0,
        fetch: Callable[[Run], None] = lambda run: None,
    ):
        self._source = source
        self._check = check
        self._room = room
        self._jobs = jobs
        self._signum = signum
        self._fetch = fetch
        self._waiting: deque[Run] = deque()
        self._groups: dict[str, WorkerGroup] = {}
        self._unbegun: Counter[Path] = Counter()
        self._like: Resources | None = None
        self._source_exhausted = False
        """No further run was given, and none has ended since."""
        self._stopped = False

    @property
    def idle(self) -> bool:
        """Whether there is no worker group."""
        return not self._groups

    @property
    def unplaced(self) -> list[Resources] | None:
        """What groups wait for that have no workers yet; None while another one is at work."""
        if any(group.begun for group in self._groups.values()):
            return None
        return [group.resources for group in self._groups.values()]

    def fetch(self, folder: Path | None = None) -> None:
        """Bring the folders of runs that are done now in line.

        Args:
            folder: of one of them alone.
        """
        for group in self._groups.values():
            if group.begun and group.run and folder in (None, group.run.folder):
                self._fetch(group.run)

    def stop(self) -> None:
        """Start no further run."""
        self._stopped = True

    def open(self, name: str) -> WorkerGroup | None:
        """A group to start now, under the caller's name for it; None: no room, or none needed."""
        if not self._fits(self._like) or not self._more():
            return None
        resources = _scale(self._waiting[0])
        if not self._fits(resources):
            return None
        group = WorkerGroup(resources, self._shares(resources) or {}, None, 0)
        self._hand(group, self._waiting.popleft())
        self._groups[name] = group
        return group

    def ask(self, name: str, done: Done | None) -> Run | str:
        """What a worker group does next: a run, or to WAIT or END.

        Args:
            name: as it was opened.
            done: what became of its run; None: it has none, or lost the workers that did it.

        Raises:
            SubquadError: of the only run; of another one where the disk is full, or another process
                writes it.
        """
        if name not in self._groups:
            return END
        group = self._groups[name]
        if group.begun and group.run:
            self._take_back(group, done, "its process died")
        if group.run is None:
            self._next_for(group)
        group.begun = True
        if group.run is not None and not self._over():
            return group.run
        group.run = None
        return WAIT if self._may_get_one() else END

    def close(self, name: str, how: str, *, unreported_cause: str = "", most: float = 0) -> None:
        """Take back what a worker group has, whose workers have ended.

        Args:
            how: they ended, if it has a run.
            unreported_cause: what ended one of them that could not write it down itself.
            most: times in a row that they may end so before the run begins, if that is more than
                `resources.max_failures`.
        """
        group = self._groups.pop(name)
        run = group.run
        if run is None:
            return
        if unreported_cause and not _has_ended(run):
            # the last line of error.txt is what is told of it
            with suppress(OSError), opened(run.folder / ERROR, "a", encoding="utf-8") as stream:
                stream.write(f"{unreported_cause}\n")
        self._take_back(group, None, how, most)

    def _hand(self, group: WorkerGroup, run: Run) -> None:
        self._fetch(run)
        group.run = run
        group.starts = len(read_attempts(run.folder))

    def _over(self) -> bool:
        return self._stopped or self._signum() > 0

    def _more(self) -> bool:
        """Whether a run waits; where none does, the next one is drawn."""
        while not self._over() and not self._waiting and not self._source_exhausted:
            run = self._source.next_run()
            self._source_exhausted = run is None
            if run is None:
                continue
            try:
                self._check(_scale(run))
            except ConfigError as error:
                self._fail(run, str(error))
            else:
                self._like = _scale(run)
                self._waiting.append(run)
        return bool(self._waiting) and not self._over()

    def _next_for(self, group: WorkerGroup) -> None:
        """Hand a group the next run, if it is one for such workers; else one that waits for a group
        like it to start.
        """
        if self._more():
            if _scale(self._waiting[0]) == group.resources:
                self._hand(group, self._waiting.popleft())
            return
        for other in self._groups.values():
            if other.run and not other.begun and other.resources == group.resources:
                group.run, group.starts = other.run, other.starts
                other.run = None
                return

    def _may_get_one(self) -> bool:
        """Whether a group without a run is kept: the next run waits for other workers, and does not
        need its room.
        """
        if not self._more():
            return False
        wanted = _scale(self._waiting[0])
        return self._fits(wanted) or wanted in [
            group.resources for group in self._groups.values() if group.run
        ]

    def _take_back(self, group: WorkerGroup, done: Done | None, how: str, most: float = 0) -> None:
        run = group.run
        assert run is not None
        self._fetch(run)
        group.run = None
        group.begun = False
        self._source_exhausted = False
        if done is not None:
            self._stopped = self._stopped or done.stopped
            if done.error:
                kind: type[SubquadError] = getattr(subquad.errors, done.kind, SubquadError)
                if self._source.alone or issubclass(kind, RunError):
                    raise kind(done.error)
                fail(run, Group(), done.error)
        if _has_ended(run):
            self._source.ended(run)
        elif done is None:
            self._again(run, group.starts, how, most)

    def _again(self, run: Run, starts: int, how: str, most: float) -> None:
        """The run counts its attempts itself (resources.max_failures); counted here is what dies
        before it begins.
        """
        limit = max(_scale(run).max_failures, most)
        if len(read_attempts(run.folder)) > starts:
            del self._unbegun[run.folder]
        else:
            self._unbegun[run.folder] += 1
        deaths = self._unbegun[run.folder]
        if deaths <= limit:
            self._waiting.appendleft(run)
        else:
            self._fail(
                run,
                f"{how} {deaths} times before it could begin (resources.max_failures: {limit})",
            )

    def _fail(self, run: Run, reason: str) -> None:
        if self._source.alone:
            raise TrainingFailed(f"{reason}; `subquad resume` tries again")
        fail(run, Group(), reason)
        self._source.ended(run)

    def _fits(self, wanted: Resources | None) -> bool:
        if wanted is None or self.idle:
            return True
        if self._jobs is not None and len(self._groups) >= self._jobs:
            return False
        all_wanted = [wanted, *(group.resources for group in self._groups.values())]
        cpus = sum(resources.most * resources.cpus_per_worker for resources in all_wanted)
        return cpus <= self._room(wanted).cpus + ROUNDING and self._shares(wanted) is not None

    def _shares(self, wanted: Resources) -> dict[int, float] | None:
        """Where GPUs are found: whole ones, or a share of one, the fullest that has it; None:
        nowhere now.
        """
        each = wanted.gpus_per_worker
        if not each:
            return {}
        share = min(each, 1.0)
        used = Counter[int]()
        for group in self._groups.values():
            used.update(group.gpus)  # type: ignore[arg-type]
        roomy = [
            gpu for gpu in range(self._room(wanted).gpus) if 1.0 - used[gpu] >= share - ROUNDING
        ]
        roomy.sort(key=lambda gpu: 1.0 - used[gpu])
        count = max(1, round(wanted.most * each))
        return dict.fromkeys(roomy[:count], share) if len(roomy) >= count else None


def _scale(run: Run) -> Resources:
    return run.experiment.resources


def _has_ended(run: Run) -> bool:
    """Whether a run has a result, and not that of a failure before it was started again."""
    result = find_file(Result, run.folder)
    return bool(result) and (result.status != "failed" or result.launch == run.launch)

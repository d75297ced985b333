"""Ways of building a mixer, checked side by side in processes of their own.

A way travels as what the user pointed at (a name, or a file's text) and its number, since classes of a file cannot.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from subquad.registry import Resolved, SourceFile, stdout_to_stderr
from subquad.testing.check import CheckCase, CheckOutcome
from subquad.testing.checks import CHECKS
from subquad.testing.subject import CheckSubject, check_subjects


@dataclass(frozen=True)
class _Way:
    """One way of building a mixer, in a form that can be sent.

    Attributes:
        origin, params, options: what `check_subjects` is called with, and
        number: which of the subjects is meant.
        name: of the subject.
        checks: names of checks.
        exclude: reasons by check name.
    """

    origin: str | SourceFile
    params: Mapping[str, Any] | None
    options: Mapping[str, Any]
    number: int
    name: str
    checks: Sequence[str]
    exclude: Mapping[str, str]


class CheckWorkers:
    """Processes that start when they are needed and are stopped at the end, at once where something was raised.

    Args:
        jobs: processes at a time.
    """

    def __init__(self, jobs: int):
        self.jobs = jobs
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> CheckWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._executor is None:
            return
        self._executor.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for process in multiprocessing.active_children():
                process.terminate()

    def check(
        self,
        subjects: Sequence[CheckSubject],
        params: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        checks: Sequence[str],
        exclude: Mapping[str, str],
    ) -> Iterator[CheckOutcome] | None:
        """Outcomes of the checks of all ways of building a mixer, in order; None where it cannot be sent.

        Args:
            subjects: all that `check_subjects` makes of the mixer with
            params, options: as they were given to it.
            checks: names of checks.
            exclude: reasons by check name.
        """
        if (origin := _sendable(subjects[0].resolved)) is None:
            return None
        named = enumerate(map(str, subjects))
        return self.outcomes([_Way(origin, params, options, number, name, checks, exclude) for number, name in named])

    def outcomes(self, ways: Sequence[_Way]) -> Iterator[CheckOutcome]:
        """Outcomes of all ways, in order."""
        for future, way in [(self._submit(way), way) for way in ways]:
            yield from self._result(future, way)

    def _result(self, future: Future[list[CheckOutcome]], way: _Way) -> list[CheckOutcome]:
        # All ways under way are lost with a process that dies: whose fault it was shows when each is alone.
        for attempt in (lambda: future, lambda: self._submit(way)):
            try:
                return attempt().result()
            except BrokenProcessPool:
                self._executor = None
        detail = "the process that checked it died: a crash in native code, or not enough memory"
        return [CheckOutcome(subject=way.name, check=name, status="failed", detail=detail) for name in way.checks]

    def _submit(self, way: _Way) -> Future[list[CheckOutcome]]:
        if self._executor is None:
            # A fork would copy torch's threads half-alive. Ctrl-C is the parent's, which stops its processes itself.
            context, quiet = multiprocessing.get_context("spawn"), (signal.SIGINT, signal.SIG_IGN)
            self._executor = ProcessPoolExecutor(self.jobs, context, initializer=signal.signal, initargs=quiet)
        try:
            return self._executor.submit(_check_way, way)
        except BrokenProcessPool as error:  # died while ways were being handed over
            lost: Future[list[CheckOutcome]] = Future()
            lost.set_exception(error)
            return lost


def _sendable(resolved: Resolved) -> str | SourceFile | None:
    """What another process finds a plugin by; None for a class that was handed over."""
    return resolved.source or (resolved.found.full_name if resolved.found.distribution else None)


def _check_way(way: _Way) -> list[CheckOutcome]:
    """Every check of one way, in a process of its own."""
    with stdout_to_stderr():
        subject = list(check_subjects(way.origin, way.params, **way.options))[way.number]
        return [CheckCase(one, subject, way.exclude).outcome() for one in CHECKS if one.name in way.checks]

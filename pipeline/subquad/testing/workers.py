"""Ways of building a mixer, checked side by side in processes of their own.

A way travels as what the user pointed at (a name, or a file's text) and its number, since classes of a file cannot.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from subquad.registry import Resolved, SourceFile, load_source, resolve, stdout_to_stderr
from subquad.testing.check import Check, CheckOutcome, run_check
from subquad.testing.checks import CHECKS
from subquad.testing.subject import CheckSubject, check_subjects


@dataclass(frozen=True)
class _Way:
    """One way of building a mixer, in a form that can be sent.

    Attributes:
        origin: a plugin's name, or a file's text.
        params: as given by the user, None for defaults and variants.
        number: which of the ways that `subjects` makes of these, and
        name: what that subject is called.
        checks: names of checks.
        exclude: reasons by check name.
        options: further attributes of the subject.
    """

    origin: str | SourceFile
    params: Mapping[str, Any] | None
    number: int
    name: str
    checks: tuple[str, ...]
    exclude: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)


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
        resolved: Resolved,
        params: Mapping[str, Any] | None,
        subjects: Sequence[CheckSubject],
        checks: Sequence[Check],
        exclude: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Iterator[CheckOutcome] | None:
        """Outcomes of the checks of all ways of building a mixer, in order; None where it cannot be sent.

        Args:
            resolved: the plugin.
            params: as given by the user, None for defaults and variants.
            subjects: all that `check_subjects` makes of these.
            checks: what to check.
            exclude: reasons by check name.
            options: further attributes of the subjects.
        """
        origin, names = _sendable(resolved), tuple(check.name for check in checks)
        if origin is None:
            return None
        ways = [_Way(origin, params, index, str(one), names, exclude, options) for index, one in enumerate(subjects)]
        return self.outcomes(ways)

    def outcomes(self, ways: Sequence[_Way]) -> Iterator[CheckOutcome]:
        """Outcomes of all ways, in order."""
        for future, way in [(self._submit(way), way) for way in ways]:
            yield from self._result(future, way)

    def _result(self, future: Future[list[CheckOutcome]], way: _Way) -> list[CheckOutcome]:
        try:
            return future.result()
        except BrokenProcessPool:
            pass  # all ways under way were lost with the process that died: whose fault it was shows when each is alone
        self._executor = None
        try:
            return self._submit(way).result()
        except BrokenProcessPool:
            self._executor = None
            return _died(way)

    def _submit(self, way: _Way) -> Future[list[CheckOutcome]]:
        if self._executor is None:
            # A fork would copy torch's threads half-alive.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_ignore_ctrl_c)
        try:
            return self._executor.submit(_check_way, way)
        except BrokenProcessPool as error:  # died while ways were being handed over
            lost: Future[list[CheckOutcome]] = Future()
            lost.set_exception(error)
            return lost


def _sendable(resolved: Resolved) -> str | SourceFile | None:
    """What another process finds a plugin by; None for a class that was handed over."""
    if resolved.source:
        return resolved.source
    return resolved.found.full_name if resolved.found.distribution else None


def _check_way(way: _Way) -> list[CheckOutcome]:
    """Every check of one way, in a process of its own."""
    with stdout_to_stderr():
        resolved = resolve("mixer", way.origin) if isinstance(way.origin, str) else load_source(way.origin)
        subject = list(check_subjects(resolved, way.params, **way.options))[way.number]
        return [run_check(check, subject, way.exclude) for check in CHECKS if check.name in way.checks]


def _died(way: _Way) -> list[CheckOutcome]:
    detail = "the process that checked it died: a crash in native code, or not enough memory"
    return [CheckOutcome(subject=way.name, check=check, status="failed", detail=detail) for check in way.checks]


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its processes itself

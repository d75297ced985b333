"""Ways of building a mixer, checked side by side in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from typing import Any

from subquad.processes import forking_context, settle
from subquad.registry import SourceFile, stdout_to_stderr
from subquad.testing.check import CheckCase, CheckOutcome


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
            self._executor.shutdown()  # its queues' semaphores are given back

    def outcomes(
        self, cases: Sequence[CheckCase], target: str | SourceFile, asked: Mapping[str, Any]
    ) -> Iterator[CheckOutcome]:
        """Outcomes of all cases in order; those of one subject come from one process.

        Args:
            cases: what `check_mixer` makes of
            target: the mixer's name or its file's text, which can be sent where classes cannot, and
            asked: its other arguments.
        """
        size = sum(case.subject is cases[0].subject for case in cases)
        ways = [slice(start, start + size) for start in range(0, len(cases), size)]
        submits = [partial(self._submit, target, asked, way) for way in ways]
        for way, submit, future in [(way, submit, submit()) for way, submit in zip(ways, submits, strict=True)]:
            yield from self._result(future, submit) or map(_died, cases[way])

    def _result(
        self, future: Future[list[CheckOutcome]], submit: Callable[[], Future[list[CheckOutcome]]]
    ) -> list[CheckOutcome] | None:
        """None where its process died. All ways under way are lost with one: whose fault it was shows once alone."""
        for attempt in (lambda: future, submit):
            try:
                return attempt().result()
            except BrokenProcessPool:
                self._executor = None
        return None

    def _submit(self, *way: Any) -> Future[list[CheckOutcome]]:
        if self._executor is None:
            start = {"initializer": settle, "initargs": (dict(os.environ),)}
            self._executor = ProcessPoolExecutor(self.jobs, forking_context(), **start)
        try:
            return self._executor.submit(_check_way, *way)
        except BrokenProcessPool as error:  # died while ways were being handed over
            lost: Future[list[CheckOutcome]] = Future()
            lost.set_exception(error)
            return lost


def _check_way(target: str | SourceFile, asked: Mapping[str, Any], way: slice) -> list[CheckOutcome]:
    """Every check of one way, in a process of its own."""
    from subquad.testing.certificate import check_mixer

    with contextlib.suppress(ImportError):  # torch's compiler imports it where it is installed
        from tqdm import tqdm

        tqdm.set_lock(threading.RLock())  # its own is a semaphore that a stopped process would leave behind
    with stdout_to_stderr():
        return [case.outcome() for case in check_mixer(target, **asked)[way]]


def _died(case: CheckCase) -> CheckOutcome:
    detail = "the process that checked it died: a crash in native code, or not enough memory"
    named = CheckOutcome(subject=str(case.subject), check=case.check.name, status="failed", detail=detail)
    return replace(named, again=case.again)

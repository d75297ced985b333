"""Ways of building a mixer, checked side by side in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any

from subquad.processes import forking_context, settle
from subquad.registry import SourceFile, stdout_to_stderr
from subquad_check.cases import CheckCase, CheckOutcome
from subquad_check.suite import check_mixer

Done = Callable[[CheckOutcome], None]


def ignore_outcome(outcome: CheckOutcome) -> None:
    """Nobody is told."""


class CheckWorkers:
    """Processes that start when they are needed and are stopped at the end, at once where something
    was raised.

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
        self,
        cases: Sequence[CheckCase],
        target: str | SourceFile,
        arguments: Mapping[str, Any],
        done: Done = ignore_outcome,
    ) -> Iterator[CheckOutcome]:
        """Outcomes of all cases in order; those of one subject come from one process.

        Args:
            cases: what `check_mixer` makes of
            target: the mixer's name or its file's text, which can be sent where classes cannot, and
            arguments: its other arguments.
            done: a function of a module, told of each outcome by the process that found it.
        """
        size = sum(case.subject is cases[0].subject for case in cases)
        ways = [slice(start, start + size) for start in range(0, len(cases), size)]
        futures = [self._submit(target, arguments, way, done) for way in ways]
        for way, future in zip(ways, futures, strict=True):
            found = self._result(future)
            if found is None:
                # all ways under way are lost with one: whose fault it was shows alone
                found = self._result(self._submit(target, arguments, way, done))
            yield from found or [
                CheckOutcome(
                    subject=str(case.subject),
                    check=case.check.name,
                    status="failed",
                    detail="the process that checked it died: a crash in native code, or not "
                    "enough memory",
                    again=case.again,
                )
                for case in cases[way]
            ]

    def _result(self, future: Future[list[CheckOutcome]] | None) -> list[CheckOutcome] | None:
        """None where its process died."""
        with contextlib.suppress(BrokenProcessPool):
            if future:
                return future.result()
        self._executor = None
        return None

    def _submit(self, *way: Any) -> Future[list[CheckOutcome]] | None:
        """None where a process died while ways are being handed over."""
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self.jobs, forking_context(), _settle_beside, (dict(os.environ),)
            )
        with contextlib.suppress(BrokenProcessPool):
            return self._executor.submit(_check_way, *way)
        return None


def outcomes_of(cases: Sequence[CheckCase], done: Done) -> list[CheckOutcome]:
    """Run cases one after the other."""
    outcomes = []
    for case in cases:
        outcomes.append(case.outcome())
        done(outcomes[-1])
    return outcomes


def _settle_beside(environment: Mapping[str, str]) -> None:
    """As `settle`; and this process ends with the one that asks, even where that is killed."""
    settle(environment)
    asking = multiprocessing.parent_process()
    assert asking

    def end() -> None:
        wait([asking.sentinel])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _check_way(
    target: str | SourceFile, arguments: Mapping[str, Any], way: slice, done: Done
) -> list[CheckOutcome]:
    """Every check of one way, in a process of its own."""
    with contextlib.suppress(ImportError):  # torch's compiler imports it where it is installed
        from tqdm import tqdm

        # its own is a semaphore that a stopped process would leave behind
        tqdm.set_lock(threading.RLock())
    with stdout_to_stderr():
        return outcomes_of(check_mixer(target, **arguments)[way], done)

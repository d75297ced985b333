"""From a study to its results: tracking and progress around whichever driver does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from subquad.drivers.executor import Executor
from subquad.drivers.folder import exclusive
from subquad.drivers.progress import Display
from subquad.drivers.signals import Signum, listening
from subquad.experiment import Run, Study
from subquad.storage import store_copy
from subquad.tracking.publisher import open_publisher
from subquad.tracking.upload import Summary
from subquad.trust import refuse_strange_storage


@dataclass(frozen=True)
class Outcome:
    """What became of a study.

    Attributes:
        signum: the signal that stopped it, 0 where none did.
        failed: labels of runs that stopped themselves, with their reasons.
        unfinished: labels of runs without a result.
        tracking: what became of the metrics.
    """

    signum: int
    failed: Mapping[str, str]
    unfinished: tuple[str, ...]
    tracking: Summary


def drive(
    study: Study,
    display: Display,
    executor: Executor,
    report: Callable[[Study, int], None] = lambda study, signum: None,
) -> Outcome:
    """Do what is left of a study.

    Args:
        display: shows progress.
        executor: trains the runs.
        report: is called at the end, with the signal that stopped it or 0; what it writes is tracked too.

    Raises:
        UserError: only the folder names its storage, or its tracking.
    """
    for storage in {run.experiment.resources.storage for run in study.runs}:
        refuse_strange_storage(storage)
    with listening() as signum, exclusive(study.folder):
        tracking = study.runs[0].experiment.tracking
        publisher = open_publisher(tracking, study.folder, name=study.name)
        seen, begun = dict[str, Any](), study.runs if study.single else study.pending
        _mirror(study, seen, study.runs if study.single else ())
        publisher.start()
        try:
            with display.showing(study.pending):
                _run(study, executor, signum)
            report(study, signum())
        finally:
            summary = publisher.close()
        _mirror(study, seen, begun)
    results = {one.label: one.result or {} for one in study.runs}
    failed = {label: one["reason"] for label, one in results.items() if one.get("status") == "failed"}
    unfinished = tuple(label for label, one in results.items() if not one)
    return Outcome(signum() if unfinished else 0, failed, unfinished, summary)


def _mirror(study: Study, seen: dict[str, Any], runs: Sequence[Run]) -> None:
    """Bring the files of a study, and of runs of it, to storage."""
    if not study.single:
        store_copy(study.folder, study.runs[0].experiment.resources.storage, seen)
    for run in runs:
        run.mirror()


def _run(study: Study, executor: Executor, signum: Signum) -> None:
    """Neighbours that ask for the same workers share one group of them."""
    for resources, runs in groupby(study.pending, key=lambda one: one.experiment.resources):
        if not signum():
            executor.train(list(runs), resources, study.folder)

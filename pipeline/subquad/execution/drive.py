"""From a study to its results: tracking and progress around whichever driver does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from subquad.execution.executor import Executor, Source
from subquad.execution.signals import listening
from subquad.experiment import Run, Study
from subquad.experiment.folder import exclusive
from subquad.output.progress import Display
from subquad.record.run_folder import RunFolder
from subquad.tracking.publisher import Publisher, Summary, open_publisher


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
    publisher: Publisher | None = None,
    begins: Callable[[Sequence[Run]], None] = lambda runs: None,
) -> Outcome:
    """Do what is left of a study.

    Args:
        display: shows progress.
        executor: trains the runs.
        report: is called at the end, with the signal that stopped it or 0; what it writes is
            tracked too.
        publisher: sends the study to MLflow; None: one of its own.
        begins: is called with the runs that are left, before the first one starts.

    Raises:
        UserError: only the folder names its tracking.
    """
    with listening() as signum, exclusive(study.folder):
        first = study.runs[0].experiment
        if publisher is None:
            publisher = open_publisher(first.tracking, study.folder, name=study.name)
        pending = study.pending
        begins(pending)
        begun = [run.files for run in (study.runs if study.single else pending)]
        if not study.single:
            begun.insert(0, RunFolder(study.folder, first.resources.storage))
            begun[0].mirror()
        publisher.start()
        try:
            with display.showing(pending):
                _work(pending, study.folder, executor)
            report(study, signum())
        finally:
            summary = publisher.close()
        for files in begun:
            files.mirror()
    results = {run.label: run.result for run in pending}
    unfinished = tuple(label for label, result in results.items() if not result)
    failed = {
        label: result.reason or ""
        for label, result in results.items()
        if result and result.status == "failed"
    }
    return Outcome(signum() if unfinished else 0, failed, unfinished, summary)


def _work(runs: Sequence[Run], folder: Path, executor: Executor) -> None:
    """Do what is left; runs that ask for the same workers follow each other."""
    scales = [*dict.fromkeys(run.experiment.resources for run in runs)]
    for resources in scales:
        executor.check_fit(resources)
    left = iter(sorted(runs, key=lambda run: scales.index(run.experiment.resources)))
    executor.work(Source(lambda: next(left, None), alone=len(runs) == 1), folder)

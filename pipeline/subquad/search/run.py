"""A search from its folder to its end: trials, winners, and the final study, which alone opens
the test split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from subquad.engine.loop import no_reason
from subquad.execution.drive import Outcome, drive
from subquad.execution.executor import Executor, Source
from subquad.execution.signals import listening
from subquad.experiment import Run, Study
from subquad.experiment.folder import exclusive
from subquad.output.progress import Display
from subquad.record.files import write_json, write_text
from subquad.record.layout import is_study
from subquad.record.names import FINAL, SUMMARY
from subquad.record.run_folder import RunFolder
from subquad.search.final import Winners, begin_final, same_winners
from subquad.search.fitting import Prepared
from subquad.search.folder import curve_of, runs_of
from subquad.search.journal import Trials
from subquad.search.plots import Drawn, Pictured, draw
from subquad.search.search import Search
from subquad.search.source import TrialSource
from subquad.search.summary import PLOTS, TRIALS_TABLE, over_of, summary_of, trials_csv
from subquad.search.trial import Curve, Trial, Values, winner_of
from subquad.tracking.publisher import Publisher, open_publisher
from subquad.tracking.publisher import Summary as Tracked


@dataclass(frozen=True)
class Watch:
    """Who is told of a search's progress, in the driver's process.

    Attributes:
        trial: called with each trial that ended or is infeasible, once over all drivers of the
            search.
        display: shows the final study's progress.
        report, final: of the final study, `report` and `begins` of `execution.drive.drive`.
    """

    trial: Callable[[Trial], None] = lambda trial: None
    display: Display = field(default_factory=lambda: Display(None))
    report: Callable[[Study, int], None] = lambda study, signum: None
    final: Callable[[Sequence[Run]], None] = lambda runs: None


@dataclass(frozen=True)
class Ended:
    """What became of a search.

    Attributes:
        summary: the contents of search.json.
        signum: the signal that stopped it, 0 where none did.
        final: the final study, and what became of it; None where it was not reached.
        drawn: the search's pictures; none before its trials are done.
        tracking: what became of the search's own runs in MLflow.
    """

    summary: Values
    signum: int
    final: tuple[Study, Outcome] | None = None
    drawn: Drawn = field(default_factory=Drawn)
    tracking: Tracked = field(default_factory=lambda: Tracked(delivered=True))


def run(prepared: Prepared, folder: Path, watch: Watch, executor: Executor) -> Ended:
    """Do what is left of a search.

    Raises:
        RunError: another process has the search, one of its trials or a mixer's file was edited or
            damaged, or its final study began with other winners.
        UserError: tracking is asked for and cannot work.
    """
    with listening(), exclusive(folder), executor.kept():
        search = prepared.search
        experiment = search.candidates[0].run.experiment
        publisher = open_publisher(experiment.tracking, folder, name=search.study.name)
        files = RunFolder(folder, experiment.resources.storage)
        files.mirror()
        publisher.start()
        try:
            ended = _run(prepared, folder, watch, executor, files.mirror)
        finally:
            tracking = publisher.close()
        files.mirror()
        return replace(ended, tracking=tracking)


def _run(
    prepared: Prepared, folder: Path, watch: Watch, executor: Executor, keep: Callable[[], None]
) -> Ended:
    search = prepared.search
    trials = search.trials(folder, keep)

    def summarize() -> Values:
        summary = summary_of(search, folder, trials, source.over)
        write_json(folder / SUMMARY, summary)
        return summary

    def ended(trial: Trial) -> None:
        summarize()
        keep()
        watch.trial(trial)

    source = TrialSource(prepared, folder, trials, ended)
    signum = 0
    if is_study(folder / FINAL):
        _close(prepared, folder, trials, source)
    else:
        for unrecorded in source.unrecorded():
            source.ended(unrecorded)
        is_pruned = search.settings.pruner != "none"
        judge = source.reason_to_stop if is_pruned else no_reason
        signum = executor.work(
            Source(source.next, lambda run: source.ended(run.folder), judge), folder
        )
    write_text(folder / TRIALS_TABLE, trials_csv(search, trials))
    drawn = Drawn() if signum else _drawn(search, folder, trials)
    summary = summarize()
    winners = _winners(prepared, trials)
    if signum or not winners:
        return Ended(summary, signum, drawn=drawn)
    study = begin_final(search, folder, winners)
    summary = summarize()  # anew, as runs of earlier final studies came back
    sent_with_the_search = Publisher(study.folder, uri="", experiment="")
    outcome = drive(study, watch.display, executor, watch.report, sent_with_the_search, watch.final)
    return Ended(summary, outcome.signum, (study, outcome), drawn)


def _drawn(search: Search, folder: Path, trials: Mapping[str, Trials]) -> Drawn:
    pictured = []
    for candidate in search.candidates:
        goal = candidate.goal
        curve = partial(_newest_curve, folder, goal.metric)
        pictured.append(
            Pictured(candidate.label, candidate.space, goal, trials[candidate.label].known, curve)
        )
    return draw(pictured, folder / PLOTS)


def _newest_curve(folder: Path, metric: str, trial: Trial) -> Curve:
    curves = [curve_of(run, metric) for run in runs_of(folder, trial)]
    return next(filter(None, reversed(curves)), ())


def _close(
    prepared: Prepared, folder: Path, trials: Mapping[str, Trials], source: TrialSource
) -> None:
    """Start no trial once the final study has begun: it would be selected with the test split open.

    Raises:
        RunError: the trials have other winners than the final study.
    """
    same_winners(prepared.search, folder, _winners(prepared, trials))
    written = over_of(folder)
    for candidate in prepared.search.candidates:
        source.over[candidate.label] = written.get(candidate.label) or "the final study has begun"


def _winners(prepared: Prepared, trials: Mapping[str, Trials]) -> Winners:
    winners: dict[str, Values] = {}
    for candidate in prepared.search.candidates:
        best = winner_of(trials[candidate.label].known, candidate.goal)
        if best is not None:
            trial, _ = best
            winners[candidate.label] = prepared.fit(candidate, trial.point).values
    return winners

"""A search from its folder to its end: trials, winners, and the final study, which alone opens
the test split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from subquad.drivers.drive import Outcome, drive
from subquad.drivers.executor import Executor, Source
from subquad.drivers.folder import exclusive
from subquad.drivers.progress import Display
from subquad.drivers.signals import listening
from subquad.engine.loop import PruneReason, no_reason
from subquad.experiment import Study
from subquad.record.files import write_json, write_text
from subquad.record.layout import is_study
from subquad.record.names import FINAL, SUMMARY
from subquad.record.storage import RunFolder, remove_tree
from subquad.search.final import Winners, begin_final, same_winners
from subquad.search.folder import Trials, place_of
from subquad.search.plots import Drawn, Pictured, draw
from subquad.search.prepare import Prepared
from subquad.search.pruner import prune_reason
from subquad.search.search import Search
from subquad.search.source import TrialSource
from subquad.search.summary import PLOTS, TRIALS_TABLE, over_of, summary_of, trials_csv
from subquad.search.trial import Trial, Values, winner_of
from subquad.tracking.publisher import Publisher, open_publisher
from subquad.tracking.publisher import Summary as Tracked


@dataclass(frozen=True)
class Watch:
    """Who is told of a search's progress, in the driver's process.

    Attributes:
        trial: called with each trial that ended or is infeasible, once over all drivers of the
            search.
        final: called with the final study before it is driven.
        display: shows the final study's progress.
        report: of the final study, see `drivers.drive.drive`.
    """

    trial: Callable[[Trial], None] = lambda trial: None
    final: Callable[[Study], None] = lambda study: None
    display: Display = field(default_factory=lambda: Display(None))
    report: Callable[[Study, int], None] = lambda study, signum: None


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
    trials = search.trials(folder)

    def ended(run: Path) -> None:
        _forget_weights(run, search)
        _summarize(search, trials, source)
        keep()
        candidate, number = place_of(run)
        trial = trials.trial(candidate, number)
        if trial is not None and trial.ended:
            watch.trial(trial)

    source = TrialSource(prepared, trials, ended)
    concluding = is_study(folder / FINAL)
    if concluding:
        _close(search, trials, source)
    _tidy(search, trials)
    signum = 0
    if not concluding:
        why_stop = _why_stop(search, trials)
        signum = executor.work(Source(source.next, lambda run: ended(run.folder), why_stop), folder)
    write_text(trials.search / TRIALS_TABLE, trials_csv(search, trials))
    drawn = Drawn() if signum else _drawn(search, trials)
    summary = _summarize(search, trials, source)
    winners = _winners(search, trials)
    if signum or not winners:
        return Ended(summary, signum, drawn=drawn)
    study = begin_final(search, folder, winners)
    summary = _summarize(search, trials, source)  # anew, as runs of earlier final studies came back
    watch.final(study)
    sent_with_the_search = Publisher(study.folder, uri="", experiment="")
    outcome = drive(study, watch.display, executor, watch.report, sent_with_the_search)
    return Ended(summary, outcome.signum, (study, outcome), drawn)


def _why_stop(search: Search, trials: Trials) -> PruneReason:
    """What asks the candidates' pruners, where there are any."""
    if search.settings.pruner == "none":
        return no_reason
    pruners = {candidate.label: search.pruner(candidate) for candidate in search.candidates}
    return partial(prune_reason, trials, pruners)


def _drawn(search: Search, trials: Trials) -> Drawn:
    pictured = []
    for candidate in search.candidates:
        known = trials.of(candidate.label)
        pictured.append(Pictured(candidate.label, candidate.space, candidate.goal, known))
    return draw(pictured, trials.search / PLOTS)


def _close(search: Search, trials: Trials, source: TrialSource) -> None:
    """Start no trial once the final study has begun: it would be selected with the test split open.

    Raises:
        RunError: the trials have other winners than the final study.
    """
    same_winners(search, trials.search, _winners(search, trials))
    written = over_of(trials.search)
    for candidate in search.candidates:
        source.over[candidate.label] = written.get(candidate.label) or "the final study has begun"


def _tidy(search: Search, trials: Trials) -> None:
    """Remove weights of trials that ended, where a kill came between the two."""
    for candidate in search.candidates:
        for trial in [trial for trial in trials.of(candidate.label) if trial.ended]:
            for run in trials.runs(trial):
                _forget_weights(run, search)


def _forget_weights(run: Path, search: Search) -> None:
    """The winner is trained anew, so hundreds of trials need not keep their weights.

    The driver alone removes them: it would take files that go while it reads them for damage.
    """
    storage = search.candidates[0].run.experiment.resources.storage
    remove_tree(RunFolder(run, storage).checkpoints)


def _summarize(search: Search, trials: Trials, source: TrialSource) -> Values:
    summary = summary_of(search, trials, source.over)
    write_json(trials.search / SUMMARY, summary)
    return summary


def _winners(search: Search, trials: Trials) -> Winners:
    winners: dict[str, Values] = {}
    for candidate in search.candidates:
        best = winner_of(trials.of(candidate.label), candidate.goal)
        if best is not None:
            trial, _ = best
            winners[candidate.label] = trial.settings
    return winners

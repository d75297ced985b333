"""A search from its folder to its end: trials, winners, and the final study, which alone opens the test split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from subquad.drivers.drive import Outcome, drive
from subquad.drivers.executor import Executor
from subquad.drivers.folder import exclusive
from subquad.drivers.progress import Display
from subquad.drivers.signals import listening
from subquad.experiment import Study
from subquad.runs import FINAL, SUMMARY, is_study, write_json
from subquad.search.final import Winners, begin_final, same_winners
from subquad.search.folder import Trials, place_of
from subquad.search.plots import PLOTS, Drawn, Pictured, draw
from subquad.search.prepare import Prepared
from subquad.search.pruner import judge
from subquad.search.search import Search, same_sources
from subquad.search.source import TrialSource
from subquad.search.summary import over_of, summary_of
from subquad.search.trial import Trial, winner_of
from subquad.storage import checkpoints_of, remove_tree, store_copy
from subquad.tracking.publisher import open_publisher
from subquad.tracking.upload import Summary as Tracked


@dataclass(frozen=True)
class Watch:
    """Who is told of a search's progress, in the driver's process.

    Attributes:
        trial: called with each trial that ended or is infeasible, once over all drivers of the search.
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

    summary: dict[str, Any]
    signum: int
    final: tuple[Study, Outcome] | None = None
    drawn: Drawn = field(default_factory=Drawn)
    tracking: Tracked = field(default_factory=lambda: Tracked(delivered=True))


def run(prepared: Prepared, folder: Path, watch: Watch, executor: Executor) -> Ended:
    """Do what is left of a search.

    Raises:
        RunError: another process has the search, one of its trials or a mixer's file was edited or damaged, or its
            final study began with other winners.
        UserError: tracking is asked for and cannot work.
    """
    with listening(), exclusive(folder):
        search = prepared.search
        publisher = open_publisher(search.candidates[0].run.experiment.tracking, folder, name=search.study.name)
        storage, seen = search.candidates[0].run.experiment.resources.storage, dict[str, Any]()
        store_copy(folder, storage, seen)
        publisher.start()
        try:
            ended = _run(prepared, folder, watch, executor, lambda: store_copy(folder, storage, seen))
        finally:
            tracking = publisher.close()
        store_copy(folder, storage, seen)
        return replace(ended, tracking=tracking)


def _run(prepared: Prepared, folder: Path, watch: Watch, executor: Executor, keep: Callable[[], None]) -> Ended:
    search, trials = prepared.search, prepared.search.trials(folder)
    same_sources(search, folder)

    def ended(run: Path) -> None:
        _forget_weights(run)
        _summarize(search, trials, source)
        keep()
        _, candidate, number = place_of(run)
        if (found := trials.one(candidate, number)) is not None and found.ended:
            watch.trial(found)

    source = TrialSource(prepared, trials, ended)
    concluding = is_study(folder / FINAL)
    if concluding:
        _close(search, trials, source)
    _tidy(search, trials)
    signum = 0
    if not concluding:
        pruners = {one.label: search.pruner(one) for one in search.candidates}
        asked = partial(judge, trials, pruners) if search.settings.pruner != "none" else None
        signum = executor.search(source.next, asked, lambda run: ended(run.folder))
    summary = _summarize(search, trials, source)
    if signum:
        return Ended(summary, signum)
    told = [Pictured(one.label, one.space, one.goal, trials.of(one.label)) for one in search.candidates]
    drawn = draw(told, folder / PLOTS)
    winners = _winners(search, trials)
    if not winners:
        return Ended(summary, 0, drawn=drawn)
    study = begin_final(search, folder, winners)
    summary = _summarize(search, trials, source)  # anew, as runs of earlier final studies came back
    watch.final(study)
    outcome = drive(study, watch.display, executor, watch.report)
    return Ended(summary, outcome.signum, (study, outcome), drawn)


def _close(search: Search, trials: Trials, source: TrialSource) -> None:
    """Start no trial once the final study has begun: it would be selected with the test split open.

    Raises:
        RunError: the trials have other winners than the final study.
    """
    same_winners(search, trials.search, _winners(search, trials))
    written = over_of(trials.search)
    source.over = {one.label: written.get(one.label) or "the final study has begun" for one in search.candidates}


def _tidy(search: Search, trials: Trials) -> None:
    """Remove weights of trials that ended, where a kill came between the two."""
    for trial in (trial for one in search.candidates for trial in trials.of(one.label) if trial.ended):
        for run in trials.runs(trial):
            _forget_weights(run)


def _forget_weights(run: Path) -> None:
    remove_tree(checkpoints_of(run))


def _summarize(search: Search, trials: Trials, source: TrialSource) -> dict[str, Any]:
    summary = summary_of(search, trials, source.over)
    write_json(trials.search / SUMMARY, summary)
    return summary


def _winners(search: Search, trials: Trials) -> Winners:
    found = {one.label: winner_of(trials.of(one.label), one.goal) for one in search.candidates}
    return {label: pair[0] for label, pair in found.items() if pair}

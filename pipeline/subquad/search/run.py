"""A search from its folder to its end: trials, winners, and the final study, which alone opens the test split."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from subquad.drivers.drive import Outcome, drive
from subquad.drivers.executor import Executor
from subquad.drivers.folder import begin, exclusive, reopen
from subquad.drivers.progress import Display
from subquad.engine.state import CHECKPOINTS
from subquad.experiment import Study
from subquad.runs import FINAL, SUMMARY, is_study, read_json, write_json
from subquad.search.folder import Trials, place_of, run_folders, trial_folder
from subquad.search.loop import Agenda, Lane
from subquad.search.plots import PLOTS, Drawn, Pictured, draw
from subquad.search.prepare import Prepared
from subquad.search.pruner import Pruning
from subquad.search.search import Search, pruner_of, same_sources, sampler_of, seeds_of, trial_runs, trials_of
from subquad.search.summary import summary_of
from subquad.search.trial import Trial, winner_of
from subquad.search.winner import Winners, final_study, same_winners, write_best
from subquad.tracking.publisher import NullPublisher, Publisher, open_publisher
from subquad.tracking.upload import Summary as Tracked


@dataclass(frozen=True)
class Watch:
    """Who is told of a search's progress, in the driver's process.

    Attributes:
        trial: called with each trial that ended or is infeasible, once over all drivers of the search.
        final: called with the final study before it is driven.
        display: shows the final study's progress.
    """

    trial: Callable[[Trial], None] = lambda trial: None
    final: Callable[[Study], None] = lambda study: None
    display: Display = field(default_factory=lambda: Display(None))


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
    with exclusive(folder):
        publisher = _publisher_of(prepared.search, folder)
        publisher.start()
        try:
            ended = _run(prepared, folder, watch, executor)
        finally:
            tracking = publisher.close()
        return replace(ended, tracking=tracking)


def _run(prepared: Prepared, folder: Path, watch: Watch, executor: Executor) -> Ended:
    search, trials = prepared.search, trials_of(prepared.search, folder)
    same_sources(search, folder)
    lanes = _lanes(prepared)
    concluding = is_study(folder / FINAL)
    if concluding:
        _close(search, folder, trials, lanes)
    _tidy(search, trials, folder)
    signum = 0 if concluding else _train(prepared, folder, trials, lanes, watch, executor)
    summary = _summarize(search, folder, trials, lanes)
    if signum:
        return Ended(summary, signum)
    winners, drawn = _winners(search, trials), _draw_search(search, trials, folder)
    if not any(trial for _, trial in winners):
        return Ended(summary, 0, drawn=drawn)
    return replace(_conclude(search, folder, winners, summary, watch, executor), drawn=drawn)


def _lanes(prepared: Prepared) -> list[Lane]:
    search = prepared.search
    return [
        Lane(one.label, sampler_of(search, one), prepared.fitters[one.label], seeds_of(search, one))
        for one in search.candidates
    ]


def _close(search: Search, folder: Path, trials: Trials, lanes: list[Lane]) -> None:
    """Start no trial once the final study has begun: it would be selected with the test split open.

    Raises:
        RunError: the trials have other winners than the final study.
    """
    same_winners(folder, search.study, _winners(search, trials), search.settings.final_seeds)
    written = (read_json(folder / SUMMARY) or {}).get("candidates", [])
    reasons = {one["label"]: one["over"] for one in written}
    for lane in lanes:
        lane.over = reasons.get(lane.label) or "the final study has begun"


def _train(
    prepared: Prepared, folder: Path, trials: Trials, lanes: list[Lane], watch: Watch, executor: Executor
) -> int:
    search = prepared.search

    def ended(run: Path) -> None:
        _forget_weights(run)
        _summarize(search, folder, trials, lanes)
        _, candidate, number = place_of(run)
        if (found := trials.one(candidate, number)) is not None and found.ended:
            watch.trial(found)

    agenda = Agenda(folder, trials, lanes, search.settings.limit, trial_runs(search), ended)
    return executor.search(agenda.next, _judge(search, trials), lambda run: ended(run.folder))


def _judge(search: Search, trials: Trials) -> Pruning | None:
    if search.settings.pruner == "none":
        return None
    return Pruning(trials, {one.label: pruner_of(search, one) for one in search.candidates})


def _tidy(search: Search, trials: Trials, folder: Path) -> None:
    """Remove weights of trials that ended, where a kill came between the two."""
    for one in search.candidates:
        for trial in trials.of(one.label):
            if trial.ended:
                for run in run_folders(trial_folder(folder, one.label, trial.number)):
                    _forget_weights(run)


def _forget_weights(run: Path) -> None:
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)


def _summarize(search: Search, folder: Path, trials: Trials, lanes: list[Lane]) -> dict[str, Any]:
    summary = summary_of(search, folder, trials, {lane.label: lane.over for lane in lanes})
    write_json(folder / SUMMARY, summary)
    return summary


def _winners(search: Search, trials: Trials) -> Winners:
    found = [(one, winner_of(trials.of(one.label), one.goal())) for one in search.candidates]
    return [(one, pair and pair[0]) for one, pair in found]


def _conclude(
    search: Search, folder: Path, winners: Winners, summary: dict[str, Any], watch: Watch, executor: Executor
) -> Ended:
    """Write the winners down and train them anew over the final seeds; begun before, it goes on."""
    seeds, place = search.settings.final_seeds, folder / FINAL
    for candidate, trial in winners:
        if trial is not None:
            write_best(folder, candidate, trial, seeds)
    if is_study(place):
        study = reopen(place)
    else:
        study = begin(final_study(folder, search.study, winners, seeds), place)
    watch.final(study)
    outcome = drive(study, watch.display, executor)
    return Ended(summary, outcome.signum, (study, outcome))


def _publisher_of(search: Search, folder: Path) -> Publisher | NullPublisher:
    """What sends a search to MLflow: `start()` before its first trial, `close()` after its last file.

    Where the experiments' `tracking.enabled` is false it does nothing.

    Args:
        folder: of the search, written down already.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed.
    """
    return open_publisher(search.candidates[0].run.experiment.tracking, folder, name=search.study.name)


def _draw_search(search: Search, trials: Trials, folder: Path) -> Drawn:
    """Draw a search's pictures into its folder; never raises."""
    candidates = [
        Pictured(one.label, search.spaces[one.label], one.goal(search.settings.cost), trials.of(one.label))
        for one in search.candidates
    ]
    return draw(candidates, folder / PLOTS)

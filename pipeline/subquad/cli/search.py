"""A search on the command line, for `tune` and `resume`: a line for each trial, what each candidate
used, the final study's report.
"""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from subquad.cli.folders import short
from subquad.cli.study import (
    Columns,
    full_disks_named,
    make_report,
    report_apart,
    say,
    show_table,
    summary,
    tell,
    tracking_line,
)
from subquad.errors import Interrupted, TrainingFailed
from subquad.execution.executor import Executor
from subquad.experiment import Study
from subquad.experiment.settings import shorten
from subquad.output.progress import Display
from subquad.output.terminal import console_of
from subquad.record.files import json_value
from subquad.record.names import WINNERS
from subquad.reports import ReportDocument
from subquad.reports.search_report import point_text, print_candidates, untuned
from subquad.search.fitting import Prepared
from subquad.search.prepare import estimate, prepare
from subquad.search.run import Ended, Watch, run
from subquad.search.search import (
    Search,
    read_search,
    reopened,
    write_search,
)
from subquad.search.settings import Settings
from subquad.search.summary import PLOTS
from subquad.search.timing import Timing
from subquad.search.trial import Trial, Values
from subquad.session import Session
from subquad.suggest import to_paste

MAX_REASON = 160
NOISY = 0.1
"""Difference of a step's time between rounds from which on it is told, relative to their median."""

ESTIMATE: Columns = {
    "candidate": ("label", "", ""),
    "trials": ("trials", "", ""),
    "dims": ("dimensions", "", ""),
    "grid": ("grid", ",", "-"),
    "infea-\nsible": ("infeasible", "", ""),
    "params": ("parameters", ",", "?"),
    "steps": ("steps", ",", ""),
    "FLOPs/\ntrial": ("flops", ".3g", "unknown"),
    "s/\ntrial": ("trial_seconds", ".3g", ""),
    "hours": ("hours", ".3g", ""),
}
"""Of a dry run."""


def start_search(
    session: Session, study: Study, settings: Settings, *, dry_run: bool, as_json: bool
) -> int:
    """Do a new search, or say what it would do. Returns the exit code."""
    prepared = session.prepare(study, settings, measure=dry_run)
    if dry_run:
        found = estimate(prepared)
        if as_json:
            click.echo(json.dumps(found, default=str))
        else:
            _show_estimate(found)
        return 0
    return _run_search(
        prepared, write_search(prepared.search, session.root), session.executor, as_json=as_json
    )


def resume_search(folder: Path, budget: str | None, executor: Executor, *, as_json: bool) -> int:
    """Go on with a search that was stopped or killed, or with a larger one. Returns the exit
    code.
    """
    folder = folder.resolve()
    search = reopened(folder, read_search(folder), budget)
    return _run_search(prepare(search, executor, fresh=False), folder, executor, as_json=as_json)


def _run_search(prepared: Prepared, folder: Path, executor: Executor, *, as_json: bool) -> int:
    """Drive a search to its end and say what came of it. Returns the exit code.

    Raises:
        DiskError: the disk is full; no trial is charged for it.
        Interrupted: a signal arrived.
        TrainingFailed: no trial finished.
    """
    console = console_of(stderr=as_json)
    search = prepared.search
    _opening(search, folder, console)
    reported: dict[tuple[str, str], int] = {}
    made: list[ReportDocument] = []
    watch = Watch(
        trial=lambda trial: say(console, _trial_line(search, trial, reported)),
        final=lambda runs: say(console, f"final study: {len(runs)} runs to do"),
        display=Display(None if as_json else console),
        report=partial(make_report, made, console),
    )
    again = to_paste("resume", short(folder), *executor.options)
    with full_disks_named(again):
        ended = run(prepared, folder, watch, executor)
    if as_json:
        final = summary(*ended.final) if ended.final else None
        values = json_value({**ended.summary, "signal": ended.signum, "final": final})
        click.echo(json.dumps(values, default=str))
    else:
        _show(ended, console, made)
    return _exit_code(ended, again)


def _exit_code(ended: Ended, again: str) -> int:
    outcome = ended.final and ended.final[1]
    if ended.signum and (outcome is None or outcome.unfinished):
        name = signal.Signals(ended.signum).name
        raise Interrupted(ended.signum, f"stopped by {name}; go on with: {again}")
    candidates = ended.summary["candidates"]
    if outcome is None:
        reasons = [
            f"{candidate['label']}: {text}"
            for candidate in candidates
            for text in candidate["reasons"]
        ]
        raise TrainingFailed(f"no trial finished: {'; '.join(reasons) or 'all were ended early'}")
    if outcome.failed or outcome.unfinished:
        return 1
    return int(any(candidate["best"] is None for candidate in candidates))


def _opening(search: Search, folder: Path, console: Console) -> None:
    settings = search.settings
    candidates = search.candidates
    limit = settings.limit
    whom = candidates[0].label if len(candidates) == 1 else f"each of {len(candidates)} candidates"
    pruner = "" if settings.pruner == "none" else f" and {settings.pruner}"
    what = f"searching {settings.space} with {settings.sampler}{pruner}"
    say(console, f"{what}, at most {limit} for {whom}, in {short(folder)}")
    by_seed = defaultdict[int, list[str]](list)
    for candidate in candidates:
        by_seed[candidate.run.experiment.train.seed].append(candidate.label)
        size = candidate.space.size()
        is_small = size is not None and candidate.space.dims and size < limit.amount
        if limit.unit == "trials" and is_small:
            say(console, f"{candidate.label} has {size} points, fewer than the budget has trials")
    if len(search.study.runs) > len(candidates):
        for seed, labels in by_seed.items():
            say(console, f"trials have the study's first seed, {seed}: {', '.join(labels)}")
    _show_notes(
        settings.space,
        {candidate.label: candidate.space.dimensions for candidate in candidates},
        {candidate.label: candidate.timing for candidate in candidates},
        console,
    )


def _show_notes(
    space: str,
    dimensions: Mapping[str, int],
    timings: Mapping[str, Timing | None],
    console: Console,
) -> None:
    """Which candidates are not tuned, and what was measured; all by label."""
    for text in [
        *untuned(space, dimensions),
        *_timing_lines({label: timing for label, timing in timings.items() if timing}),
    ]:
        say(console, text)


def _trial_line(search: Search, trial: Trial, reported: dict[tuple[str, str], int]) -> str:
    best = trial.best
    if trial.state == "infeasible":
        # a reason is told once for each candidate; the point lies in trial.json
        first = reported.setdefault((trial.candidate, trial.reason), trial.number)
        told = f"as {first}" if first != trial.number else shorten(trial.reason, MAX_REASON)
        return f"{trial.candidate} {trial.number}: infeasible; {told}"
    goal = {candidate.label: candidate.goal for candidate in search.candidates}[trial.candidate]
    parts = [
        trial.state,
        best and f"validation {goal.printed.text(best.value)} at step {best.step}",
        f"{trial.steps} steps, {trial.seconds:.1f} s",
        point_text(trial.point),
        trial.reason,
    ]
    return f"{trial.candidate} {trial.number}: {'; '.join(filter(None, parts))}"


def _show(ended: Ended, console: Console, reports: Sequence[ReportDocument]) -> None:
    found = ended.summary
    folder = Path(found["folder"])
    with report_apart(folder, console):
        print_candidates(found, console)
    for text in ended.drawn.left_out:
        say(console, f"not drawn: {text}")
    where = short(folder)
    say(console, f"search  {where} (tables and pictures: {to_paste('report', where)})")
    if ended.final:
        for path in sorted((folder / WINNERS).glob("*.yaml")):
            winner = short(path)
            say(console, f"best    {winner} (runs as it is: {to_paste('train', winner)})")
    pictures = len(ended.drawn.files)
    if pictures:
        say(console, f"plots   {pictures} pictures in {short(folder / PLOTS)}")
    if ended.tracking.uri:
        say(console, f"MLflow  {tracking_line(ended.tracking)}")
    if ended.final:
        say(console, "final study, the winners on the test split:")
        _show_notes(
            found["settings"]["space"],
            {entry["label"]: entry["dimensions"] for entry in found["candidates"]},
            {},
            console,
        )
        tell(*ended.final, console, reports)


def _timing_lines(measured: Mapping[str, Timing]) -> list[str]:
    """What was measured, and a warning where it may not hold."""
    lines: list[str] = []
    noisy: list[str] = []
    for label, timing in measured.items():
        step = f"{1e3 * timing['step']:.3g} ms a step"
        lines.append(f"{label}: timed at {step}, {1e3 * timing['evaluation']:.3g} ms an evaluation")
        spread = timing["spread"]
        if spread > NOISY:
            noisy.append(f"{label} ({spread:.0%})")
    if noisy:
        lines.append(
            f"steps took unequally long between rounds: {', '.join(noisy)}; is something else "
            "running here?"
        )
    return lines


def _show_estimate(found: Values) -> None:
    console = console_of()
    rows = found["candidates"]
    some = ">= " if found["at_least"] else ""
    shown: list[Values] = []
    for row in rows:
        words = {
            "trials": f"{some}{row['trials']:,}",
            "infeasible": f"{row['infeasible']} of {row['drawn']}",
            "hours": row["seconds"] / 3600,
        }
        shown.append(row | words)
    show_table(shown, ESTIMATE, console)
    for row in rows:
        for point in row["points"]:
            reason = point["infeasible"] and f"; infeasible: {point['infeasible']}"
            settings = point_text(point["point"])
            say(console, f"{row['label']} {point['number']}: {settings}{reason or ''}")
    _show_notes(
        found["settings"]["space"],
        {row["label"]: row["dimensions"] for row in rows},
        {row["label"]: row["timing"] for row in rows},
        console,
    )
    say(
        console,
        f"{'at least ' if some else ''}{found['trials']} trials and {found['final_runs']} final "
        f"runs, about {found['seconds'] / 3600:.3g} hours of training with one worker, "
        f"evaluations included; {found['gpu_hours']:.3g} GPU-hours",
    )

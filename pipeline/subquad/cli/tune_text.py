"""What `subquad tune` does, and prints: a line for each trial, what each candidate used, the
final study's report.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from subquad.cli.conduct import (
    full_disks_named,
    make_report,
    short,
    summary,
    tell,
    tracking_line,
    writable,
)
from subquad.drivers.executor import Executor
from subquad.drivers.progress import Display
from subquad.errors import Interrupted, TrainingFailed
from subquad.experiment import load_study
from subquad.experiment.settings import shorten
from subquad.reports import ReportDocument, Table, print_cells
from subquad.reports.search_report import point_text, print_candidates, untuned
from subquad.runs import WINNERS, json_value
from subquad.search.plots import PLOTS
from subquad.search.prepare import Prepared, estimate, prepare
from subquad.search.run import Ended, Watch, run
from subquad.search.search import (
    Search,
    plan_search,
    read_search,
    reopened,
    write_search,
)
from subquad.search.settings import Settings
from subquad.search.timing import Timing
from subquad.search.trial import Trial
from subquad.suggest import to_paste
from subquad.terminal import console_of
from subquad.trust import training

MAX_REASON = 160
NOISY = 0.1
"""Difference of a step's time between rounds from which on it is told, relative to their median."""


def start_search(
    target: str,
    overrides: Sequence[str],
    options: dict[str, Any],
    executor: Executor,
    root: Path,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Do a new search, or say what it would do. Returns the exit code."""
    if "space" not in options:
        raise click.UsageError("Missing option '--space', such as --space auto+optimizer")
    settings = Settings(**options)
    with nullcontext() if dry_run else training():
        search = plan_search(load_study(target, overrides), settings)
    prepared = prepare(search, executor, measure=dry_run)
    if dry_run:
        _show_estimate(estimate(prepared), as_json=as_json)
        return 0
    return _run_search(
        prepared, write_search(prepared.search, writable(root)), executor, as_json=as_json
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
    console, search = console_of(stderr=as_json), prepared.search
    _opening(search, folder, console)
    reported: dict[tuple[str, str], int] = {}
    made: list[ReportDocument] = []
    watch = Watch(
        trial=lambda trial: _line(console, _trial_line(search, trial, reported)),
        final=lambda study: _line(console, f"final study: {len(study.pending)} runs to do"),
        display=Display(None if as_json else console),
        report=partial(make_report, made, console),
    )
    again = to_paste("resume", short(folder), *executor.options)
    with full_disks_named(again):
        ended = run(prepared, folder, watch, executor)
    if as_json:
        final = summary(*ended.final) if ended.final else None
        click.echo(
            json.dumps(
                json_value(ended.summary | {"signal": ended.signum, "final": final}), default=str
            )
        )
    else:
        _show(ended, console, made)
    _refuse_unended(ended, again)
    lacking = any(candidate["best"] is None for candidate in ended.summary["candidates"])
    outcome = ended.final[1] if ended.final else None
    return 1 if lacking or outcome is None or outcome.failed or outcome.unfinished else 0


def _refuse_unended(ended: Ended, again: str) -> None:
    if ended.signum and (ended.final is None or ended.final[1].unfinished):
        name = signal.Signals(ended.signum).name
        raise Interrupted(ended.signum, f"stopped by {name}; go on with: {again}")
    if ended.final is None:
        reasons = [
            f"{candidate['label']}: {text}"
            for candidate in ended.summary["candidates"]
            for text in candidate["reasons"]
        ]
        raise TrainingFailed(f"no trial finished: {'; '.join(reasons) or 'all were ended early'}")


def _opening(search: Search, folder: Path, console: Console) -> None:
    settings, candidates, several = search.settings, search.candidates, len(search.candidates) > 1
    whom = f"each of {len(candidates)} candidates" if several else candidates[0].label
    how = settings.sampler + (f" and {settings.pruner}" if settings.pruner != "none" else "")
    _line(
        console,
        f"searching {settings.space} with {how}, at most {settings.limit} for "
        f"{whom}, in {short(folder)}",
    )
    for candidate in candidates if settings.limit.unit == "trials" else ():
        size = candidate.space.size()
        if candidate.space.dims and size is not None and size < settings.limit.amount:
            _line(console, f"{candidate.label} has {size} points, fewer than the budget has trials")
    if len(search.study.runs) > len(candidates):
        seeds = {option.label: option.run.experiment.train.seed for option in candidates}
        for seed in dict.fromkeys(seeds.values()):
            labels = ", ".join(label for label, its in seeds.items() if its == seed)
            _line(console, f"trials have the study's first seed, {seed}: {labels}")
    notes = untuned(
        settings.space, {option.label: option.space.dimensions for option in candidates}
    )
    for text in (
        *notes,
        *_timing_lines({option.label: option.timing for option in candidates if option.timing}),
    ):
        _line(console, text)


def _trial_line(search: Search, trial: Trial, reported: dict[tuple[str, str], int]) -> str:
    if trial.state == "infeasible":
        return _infeasible_line(trial, reported)
    goal = next(
        candidate.goal for candidate in search.candidates if candidate.label == trial.candidate
    )
    best = trial.best(goal.mode)
    value = f"validation {goal.text(best.value)} at step {best.step}" if best else ""
    cost = f"{trial.steps} steps, {trial.seconds:.1f} s"
    parts = [trial.state, value, cost, point_text(trial.point), trial.reason]
    return f"{trial.candidate} {trial.number}: " + "; ".join(part for part in parts if part)


def _infeasible_line(trial: Trial, reported: dict[tuple[str, str], int]) -> str:
    """A reason is told once for each candidate; the point lies in trial.json.

    Args:
        reported: candidates with reasons, and the trial with which each was told.
    """
    first = reported.setdefault((trial.candidate, trial.reason), trial.number)
    reason = f"as {first}" if first != trial.number else shorten(trial.reason, MAX_REASON)
    return f"{trial.candidate} {trial.number}: infeasible; {reason}"


def _show(ended: Ended, console: Console, reports: Sequence[ReportDocument]) -> None:
    print_candidates(ended.summary, console)
    for text in ended.drawn.left_out:
        _line(console, f"not drawn: {text}")
    folder = Path(ended.summary["folder"])
    report = to_paste("report", short(folder))
    _line(console, f"search  {short(folder)} (tables and pictures: {report})")
    for path in sorted((folder / WINNERS).glob("*.yaml")) if ended.final else ():
        _line(console, f"best    {short(path)} (runs as it is: {to_paste('train', short(path))})")
    if ended.drawn.files:
        _line(console, f"plots   {len(ended.drawn.files)} pictures in {short(folder / PLOTS)}")
    if ended.tracking.uri:
        _line(console, f"MLflow  {tracking_line(ended.tracking)}")
    if ended.final:
        _line(console, "final study, the winners on the test split:")
        dimensions = {
            candidate["label"]: candidate["dimensions"] for candidate in ended.summary["candidates"]
        }
        for text in untuned(ended.summary["settings"]["space"], dimensions):
            _line(console, text)
        study, outcome = ended.final
        tell(study, outcome, console, reports)


def _timing_lines(measured: Mapping[str, Timing]) -> list[str]:
    """What was measured, and a warning where it may not hold."""
    lines = [
        (
            f"{label}: timed at {timing['step'] * 1e3:.3g} ms a step, "
            f"{timing['evaluation'] * 1e3:.3g} ms an evaluation"
        )
        for label, timing in measured.items()
    ]
    noisy = [
        f"{label} ({timing['spread']:.0%})"
        for label, timing in measured.items()
        if timing["spread"] > NOISY
    ]
    if noisy:
        lines.append(
            f"steps took unequally long between rounds: {', '.join(noisy)}; is "
            "something else running here?"
        )
    return lines


def _show_estimate(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found, default=str))
        return
    console, rows = console_of(), found["candidates"]
    cells = [_estimate_cells(row, found["at_least"]) for row in rows]
    print_cells(Table.of(cells, [name for name in cells[0] if name != "candidate"]), console)
    for row in rows:
        for point in row["points"]:
            reason = f"; infeasible: {point['infeasible']}" if point["infeasible"] else ""
            point_line = f"{point_text(point['point'])}{reason}"
            _line(console, f"{row['label']} {point['number']}: {point_line}")
    notes = untuned(found["settings"]["space"], {row["label"]: row["dimensions"] for row in rows})
    timed = _timing_lines({row["label"]: row["timing"] for row in rows if row["timing"]})
    for text in (*notes, *timed):
        _line(console, text)
    _line(
        console,
        f"{'at least ' * found['at_least']}{found['trials']} trials and "
        f"{found['final_runs']} final runs, about "
        f"{found['seconds'] / 3600:.3g} hours of training with one worker, evaluations included; "
        f"{found['gpu_hours']:.3g} GPU-hours",
    )


def _estimate_cells(row: Mapping[str, Any], at_least: bool) -> dict[str, str]:
    return {
        "candidate": row["label"],
        "trials": f"{'>= ' * at_least}{row['trials']:,}",
        "dims": str(row["dimensions"]),
        "grid": "-" if row["grid"] is None else f"{row['grid']:,}",
        "infea-\nsible": f"{row['infeasible']} of {row['drawn']}",
        "params": "?" if row["parameters"] is None else f"{row['parameters']:,}",
        "steps": f"{row['steps']:,}",
        "FLOPs/\ntrial": "unknown" if row["flops"] is None else f"{row['flops']:.3g}",
        "s/\ntrial": f"{row['trial_seconds']:.3g}",
        "hours": f"{row['seconds'] / 3600:.3g}",
    }


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    console.file.flush()

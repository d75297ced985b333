"""What `subquad tune` prints: a line for each trial, what each candidate consumed, the report of the final study."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from subquad.cli.conduct import short, summary, tell, tracking_line
from subquad.drivers.executor import Executor
from subquad.drivers.progress import Display
from subquad.errors import Interrupted, TrainingFailed
from subquad.experiment.settings import shorten
from subquad.report.search import point_text, print_candidates
from subquad.runs import json_value
from subquad.search.folder import BEST
from subquad.search.materials import timing_lines
from subquad.search.plots import PLOTS
from subquad.search.prepare import Prepared
from subquad.search.run import Ended, Watch, run
from subquad.search.trial import Trial

MAX_REASON = 160


def conduct_search(prepared: Prepared, folder: Path, executor: Executor, *, as_json: bool) -> int:
    """Drive a search to its end and say what came of it. Returns the exit code.

    Raises:
        Interrupted: a signal arrived.
        TrainingFailed: no trial finished.
    """
    console = Console(stderr=as_json)
    _opening(prepared, folder, console)
    told: dict[tuple[str, str], int] = {}
    watch = Watch(
        trial=lambda trial: _line(console, _trial_line(prepared, trial, told)),
        final=lambda study: _line(console, f"final study: {len(study.pending)} runs to do"),
        display=Display(None if as_json else console),
    )
    ended = run(prepared, folder, watch, executor)
    if as_json:
        final = summary(*ended.final) if ended.final else None
        click.echo(json.dumps(json_value(ended.summary | {"signal": ended.signum, "final": final}), default=str))
    else:
        _show(ended, console)
    _refuse_unended(ended, folder)
    lacking = any(one["best"] is None for one in ended.summary["candidates"])
    outcome = ended.final[1] if ended.final else None
    return 1 if lacking or outcome is None or outcome.failed or outcome.unfinished else 0


def _refuse_unended(ended: Ended, folder: Path) -> None:
    if ended.signum and (ended.final is None or ended.final[1].unfinished):
        name = signal.Signals(ended.signum).name
        raise Interrupted(ended.signum, f"stopped by {name}; go on with: subquad tune --resume {short(folder)}")
    if ended.final is None:
        reasons = [f"{one['label']}: {text}" for one in ended.summary["candidates"] for text in one["reasons"]]
        raise TrainingFailed(f"no trial finished: {'; '.join(reasons) or 'all were ended early'}")


def _opening(prepared: Prepared, folder: Path, console: Console) -> None:
    search = prepared.search
    budget, several = search.settings.limit, len(search.candidates)
    whom = f"each of {several} candidates" if several > 1 else search.candidates[0].label
    how = search.settings.sampler
    how += f" and {search.settings.pruner}" if search.settings.pruner != "none" else ""
    _line(console, f"searching {search.settings.space} with {how}, {budget} for {whom}, in {short(folder)}")
    for seed, labels in _first_seeds(prepared).items():
        _line(console, f"trials have the study's first seed, {seed}: {', '.join(labels)}")
    for text in timing_lines({one.label: one.timing for one in search.candidates if one.timing}):
        _line(console, text)


def _first_seeds(prepared: Prepared) -> dict[int, list[str]]:
    """Candidates by their seed, where the study has several."""
    found: dict[int, list[str]] = {}
    search = prepared.search
    if len(search.study.runs) > len(search.candidates):
        for one in search.candidates:
            found.setdefault(one.run.experiment.train.seed, []).append(one.label)
    return found


def _trial_line(prepared: Prepared, trial: Trial, told: dict[tuple[str, str], int]) -> str:
    if trial.state == "infeasible":
        return _infeasible_line(trial, told)
    metric = next(one.goal for one in prepared.search.candidates if one.label == trial.candidate)
    best = trial.best(metric.mode)
    value = f"validation {metric.metric} {best.value:.4g} at step {best.step}" if best else ""
    cost = f"{trial.steps} steps, {trial.seconds:.1f} s"
    parts = [trial.state, value, cost, point_text(trial.point), trial.reason]
    return f"{trial.candidate} {trial.number}: " + "; ".join(part for part in parts if part)


def _infeasible_line(trial: Trial, told: dict[tuple[str, str], int]) -> str:
    """A reason is told once for each candidate; the point lies in trial.json.

    Args:
        told: candidates with reasons, and the trial with which each was told.
    """
    first = told.setdefault((trial.candidate, trial.reason), trial.number)
    reason = f"as {first}" if first != trial.number else shorten(trial.reason, MAX_REASON)
    return f"{trial.candidate} {trial.number}: infeasible; {reason}"


def _show(ended: Ended, console: Console) -> None:
    print_candidates(ended.summary, console)
    for text in ended.drawn.left_out:
        _line(console, f"not drawn: {text}")
    folder = Path(ended.summary["folder"])
    _line(console, f"search  {short(folder)} (tables and pictures: subquad report {short(folder)})")
    for path in sorted((folder / BEST).glob("*.yaml")) if ended.final else ():
        _line(console, f"best    {short(path)} (runs as it is: subquad train {short(path)})")
    if ended.drawn.files:
        _line(console, f"plots   {len(ended.drawn.files)} pictures in {short(folder / PLOTS)}")
    if ended.tracking.uri:
        _line(console, f"MLflow  {tracking_line(ended.tracking)}")
    if ended.final:
        _line(console, "final study, the winners on the test split:")
        tell(*ended.final, console)


def show_estimate(found: dict[str, Any], *, as_json: bool) -> None:
    """Print what a search would do."""
    if as_json:
        click.echo(json.dumps(found, default=str))
        return
    console = Console()
    table = Table(box=None, pad_edge=False)
    table.add_column("candidate", no_wrap=True)
    for header in ("trials", "dims", "grid", "infeasible", "parameters", "steps", "FLOPs/trial", "s/trial", "hours"):
        table.add_column(header, justify="right", no_wrap=True)
    least = ">= " if found["at_least"] else ""
    for row in found["candidates"]:
        table.add_row(
            Text(row["label"]),
            f"{least}{row['trials']:,}",
            str(row["dimensions"]),
            "-" if row["grid"] is None else f"{row['grid']:,}",
            f"{row['infeasible']} of {row['drawn']}",
            "?" if row["parameters"] is None else f"{row['parameters']:,}",
            f"{row['steps']:,}",
            f"{row['flops']:.3g}",
            f"{row['trial_seconds']:.3g}",
            f"{row['seconds'] / 3600:.3g}",
        )
    console.print(table)
    for row in found["candidates"]:
        for one in row["points"]:
            reason = f"; infeasible: {one['infeasible']}" if one["infeasible"] else ""
            _line(console, f"{row['label']} {one['number']}: {point_text(one['point'])}{reason}")
    for text in timing_lines({row["label"]: row["timing"] for row in found["candidates"] if row["timing"]}):
        _line(console, text)
    hours = found["seconds"] / 3600
    _line(
        console,
        f"{'at least ' * found['at_least']}{found['trials']} trials and {found['final_runs']} final runs, about "
        f"{hours:.3g} hours of training with one worker, evaluations included; {found['gpu_hours']:.3g} GPU-hours",
    )


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    console.file.flush()

"""A study on the command line, for `train`, `resume` and `tune`: show what it costs, drive it, say
what came of it and where it is.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from subquad.cli.folders import short
from subquad.engine.checkpoint import finished_steps
from subquad.engine.parts import make_plan
from subquad.errors import DiskError, Interrupted, by_class
from subquad.execution.drive import Outcome, drive
from subquad.execution.executor import Executor
from subquad.experiment import Run, Study
from subquad.output.progress import Display
from subquad.output.terminal import console_of, print_text, quantity
from subquad.preparation.costs import StudyCosts
from subquad.preparation.preflight import check_paths, naming
from subquad.preparation.size import equal_size
from subquad.record.files import read_json
from subquad.record.names import RESULT
from subquad.record.run_folder import RunFolder
from subquad.reports import (
    ReportDocument,
    Table,
    document_of,
    print_cells,
    print_document,
    read_report,
    write_document,
)
from subquad.suggest import to_paste
from subquad.tracking.publisher import Summary as Tracked
from subquad.tracking.publisher import check_tracking

Columns = Mapping[str, tuple[str, str, str]]
"""Of a table, by title: the key of its values, how they are printed, and what is printed where one
is not known.
"""

COSTS: Columns = {
    "run": ("label", "", ""),
    "samples": ("samples", ",", ""),
    "steps": ("steps", ",", ""),
    "parameters": ("parameters", ",", ""),
    "FLOPs/step": ("flops_per_step", ".3g", "?"),
    "FLOPs in all": ("flops", ".3g", "?"),
}


def run_study(study: Study, executor: Executor, *, as_json: bool) -> int:
    """Drive a study to its end and report it. Returns the exit code."""
    console = console_of(stderr=as_json)

    def begins(runs: Sequence[Run]) -> None:
        if not as_json:
            left = quantity(len(runs), "run")
            say(console, f"{left} to do in {short(study.folder)}, {executor.words}")

    again = to_paste("resume", short(study.folder), *executor.options)
    made: list[ReportDocument] = []
    with full_disks_named(again):
        outcome = drive(
            study,
            Display(None if as_json else console),
            executor,
            partial(make_report, made, console),
            begins=begins,
        )
    if as_json:
        click.echo(json.dumps(summary(study, outcome), default=str))
    else:
        tell(study, outcome, console, made)
    if outcome.signum and outcome.unfinished:
        name = signal.Signals(outcome.signum).name
        raise Interrupted(outcome.signum, f"stopped by {name} {_saved(study)}; go on with: {again}")
    return int(bool(outcome.failed or outcome.unfinished))


def say(console: Console, text: str) -> None:
    """A line for whoever looks on, at once."""
    console.print(text, markup=False, soft_wrap=True)
    console.file.flush()


@contextmanager
def full_disks_named(again: str) -> Iterator[None]:
    """Say of a full disk with which command to go on."""
    try:
        yield
    except DiskError as error:
        raise DiskError(f"{error}; mend that, then go on with: {again}") from error


def _saved(study: Study) -> str:
    """Where the runs that were stopped will go on."""
    newest = [
        str(step) for run in study.pending for step in finished_steps(run.files.checkpoints)[-1:]
    ]
    if not newest:
        return "before the first step was saved"
    steps = "step" if len(newest) == 1 else "steps"
    return f"after saving {steps} {' and '.join(newest)}"


def summary(study: Study, outcome: Outcome) -> dict:
    """What came of a study, for scripts."""
    return {
        "folder": str(study.folder),
        "runs": [
            {"folder": str(run.folder), "result": read_json(run.folder / RESULT)}
            for run in study.runs
        ],
        "failed": dict(outcome.failed),
        "unfinished": list(outcome.unfinished),
        "signal": outcome.signum,
        "mlflow": vars(outcome.tracking),
    }


def tell(
    study: Study, outcome: Outcome, console: Console, reports: Sequence[ReportDocument]
) -> None:
    """Print the report of a study, where there is one, and where its files are."""
    with report_apart(study.folder, console):
        for report in reports:
            print_document(report, console)
    say(console, f"files   {short(study.folder)}")
    storage = study.runs[0].experiment.resources.storage
    if storage:
        say(console, f"storage {RunFolder(study.folder, storage).kept}")
    if outcome.tracking.uri:
        say(console, f"MLflow  {tracking_line(outcome.tracking)}")


def make_report(made: list[ReportDocument], console: Console, study: Study, signum: int) -> None:
    """Add the report of a study that has any result to those made; written too, unless a signal
    stopped it.
    """
    if not any(run.result for run in study.runs):
        return
    with report_apart(study.folder, console):
        report = document_of(read_report([study.folder]))
        made.append(report)
        if not signum:
            write_document(report, study.folder, ("md", "csv", "html"))


@contextmanager
def report_apart(folder: Path, console: Console) -> Iterator[None]:
    """Say in one line why a report failed: whatever it raises must not cost the results."""
    try:
        yield
    except Exception as error:
        again = to_paste("report", short(folder))
        say(console, f"report failed: {by_class(error)}; results are safe, make it with: {again}")


def tracking_line(tracking: Tracked) -> str:
    """Where a study's runs are, or why they are not there yet."""
    if tracking.delivered:
        return f"{tracking.uri} (open with: subquad ui)"
    return f"{tracking.uri}: {tracking.error}; later: subquad sync"


def show_costs(study: Study, *, as_json: bool) -> None:
    """Print the resolved text, then parameters, steps and FLOPs of each run."""
    for run in study.runs:
        check_tracking(run.experiment.tracking, Path.cwd())
    check_paths(study)
    costs = StudyCosts()
    study = equal_size(study, costs)
    rows: list[dict] = []
    for run in study.runs:
        with naming(run, study):
            rows.append(_count(run, costs))
    if as_json:
        facts = {"name": study.name, "study": not study.single, "experiment": study.text}
        click.echo(json.dumps({**facts, "runs": rows}))
        return
    print_text(f"{study.text}\n")
    console = console_of()
    uncounted: set[str] = set()
    for row in rows:
        flops = row["flops_per_step"]
        row["flops"] = None if flops is None else flops * row["steps"]
        uncounted |= {f"{row['label']}: FLOPs not counted: {why}" for why in row["uncounted"]}
    show_table(rows, COSTS, console)
    for line in sorted(uncounted):
        say(console, line)
    say(console, "FLOPs: forward and backward over the global batch, element-wise work included")


def show_table(rows: Sequence[Mapping[str, Any]], columns: Columns, console: Console) -> None:
    """Print a table whose first column names what the others have numbers of."""
    cells: list[dict[str, str]] = []
    for row in rows:
        texts: dict[str, str] = {}
        for title, (key, form, unknown) in columns.items():
            texts[title] = unknown if row[key] is None else format(row[key], form)
        cells.append(texts)
    _, *numeric = columns
    print_cells(Table.of(cells, numeric), console)


def _count(run: Run, costs: StudyCosts) -> dict:
    plan = make_plan(run.experiment, costs.data(run)[0])
    return {
        "label": run.label,
        "samples": plan.num_samples,
        "steps": plan.total_steps,
        "steps_per_epoch": plan.steps_per_epoch,
        **asdict(costs.cost(run)),
    }

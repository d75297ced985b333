"""`subquad train --dry-run`: the resolved experiment and what it would cost."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from subquad.drivers.preflight import check_paths, naming
from subquad.engine.parts import make_plan
from subquad.experiment import Run, Study
from subquad.experiment.schema import Experiment
from subquad.search.materials import Materials


def show_costs(study: Study, *, as_json: bool) -> None:
    """Print the resolved text, then parameters, steps and FLOPs of each run."""
    check_paths(study)
    rows = _costs(study)
    if as_json:
        click.echo(json.dumps({"name": study.name, "study": not study.single, "experiment": study.text, "runs": rows}))
        return
    click.echo(study.text)
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    for header in ("samples", "steps", "parameters", "FLOPs/step", "FLOPs in all"):
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["label"],
            f"{row['samples']:,}",
            f"{row['steps']:,}",
            f"{row['parameters']:,}",
            _short(row["flops_per_step"]),
            _short(row["flops_per_step"] and row["flops_per_step"] * row["steps"]),
        )
    console = Console()
    console.print(table)
    for reason in sorted({f"{row['label']}: FLOPs not counted: {one}" for row in rows for one in row["uncounted"]}):
        console.print(reason, soft_wrap=True, markup=False, highlight=False)
    console.print("FLOPs: forward and backward over the global batch, element-wise work included", soft_wrap=True)


def _costs(study: Study) -> list[dict]:
    """A row per run. Runs that differ in nothing but their seed cost the same, and are counted once."""
    materials, rows = Materials(), list[dict]()
    counted: dict[str, dict] = {}
    for run in study.runs:
        key = _without_seed(run.experiment)
        if key not in counted:
            with naming(run, study):
                counted[key] = _count(run, materials)
        rows.append({"label": run.label, **counted[key]})
    return rows


def _without_seed(experiment: Experiment) -> str:
    return experiment.model_dump_json(exclude={"name": True, "train": {"seed"}, "tracking": True})


def _count(run: Run, materials: Materials) -> dict:
    dataset, _ = materials.data(run)
    plan, cost = make_plan(run.experiment, dataset), materials.cost(run)
    return {
        "samples": plan.num_samples,
        "steps": plan.total_steps,
        "steps_per_epoch": plan.steps_per_epoch,
        "parameters": cost.parameters,
        "flops_per_step": cost.flops_per_step,
        "bytes_per_step": cost.bytes_per_step,
        "uncounted": list(cost.uncounted),
    }


def _short(number: int | None) -> str:
    return "?" if number is None else f"{number:.3g}"

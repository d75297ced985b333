"""`subquad train --dry-run`: the resolved experiment and what it would cost."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from subquad.drivers.session import data_root
from subquad.engine.cost import count
from subquad.engine.parts import build_dataset
from subquad.engine.run import make_plan
from subquad.experiment import Cell, Plan


def show_costs(plan: Plan, *, as_json: bool) -> None:
    """Print the resolved text, then parameters, steps and FLOPs of each run."""
    rows = [_costs(cell) for cell in plan.cells]
    if as_json:
        click.echo(json.dumps({"name": plan.name, "study": plan.study, "experiment": plan.text, "runs": rows}))
        return
    click.echo(plan.text)
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
    console.print("FLOPs: forward and backward, of matrix products and attention only", soft_wrap=True)


def _costs(cell: Cell) -> dict:
    dataset = build_dataset(cell.experiment, data_root())
    course, cost = make_plan(cell.experiment.experiment, dataset), count(cell.experiment, dataset.describe())
    return {
        "label": cell.label,
        "samples": course.num_samples,
        "steps": course.total_steps,
        "steps_per_epoch": course.steps_per_epoch,
        "parameters": cost.parameters,
        "flops_per_step": cost.flops_per_step,
    }


def _short(number: int | None) -> str:
    return "?" if number is None else f"{number:.3g}"

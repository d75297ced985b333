"""What a study searches for: each of its cells without the seed. All candidates get the same space and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment import Cell, Checked, Plan
from subquad.experiment.axes import CASE, Axis, axis_path, parse_axes, plain_label
from subquad.experiment.settings import KeyPath, one_line
from subquad.experiment.strict_yaml import parse_yaml
from subquad.plugin import TaskPlugin
from subquad.search.trial import CostBy, Goal

SEED: KeyPath = ("train", "seed")


@dataclass(frozen=True)
class Candidate:
    """One thing that is tuned.

    Attributes:
        label: names it and its folder: the cell's label without the seed; of a single experiment its name.
        axes: the cell's coordinates without the seed.
        checked: its experiment, with the first seed of the study.
    """

    label: str
    axes: dict[str, Any]
    checked: Checked

    def goal(self, cost: CostBy = "none") -> Goal:
        """The task's own metric, on the validation split."""
        task = self.checked.task.plugin
        assert isinstance(task, TaskPlugin)
        return Goal(task.metric, task.mode, cost)


def candidates_of(plan: Plan) -> tuple[Candidate, ...]:
    """The candidates of a study in the order of its cells; of a single experiment itself.

    Raises:
        ConfigError: its protocol leaves no validation split to select on, a rule is about seeds, or it has `vary`.
    """
    _refuse_protocols(plan)
    _refuse_varied(plan)
    if not plan.study:
        (cell,) = plan.cells
        return (Candidate(cell.label, {}, cell.experiment),)
    _refuse_rules_of_seeds(plan)
    first: dict[str, Cell] = {}
    for cell in plan.cells:
        first.setdefault(repr(_without_seed(cell)), cell)
    cells = list(first.values())
    labels = [_label(cell) or plan.name for cell in cells]
    unique = len({label.lower() for label in labels}) == len(labels)
    return tuple(
        Candidate(label if unique else cell.label, _without_seed(cell), cell.experiment)
        for label, cell in zip(labels, cells, strict=True)
    )


def base_plan(plan: Plan, candidates: Sequence[Candidate]) -> Plan:
    """The plan with one cell for each candidate, to be looked at before anything starts."""
    return replace(plan, cells=tuple(Cell(one.label, one.axes, one.checked) for one in candidates))


def axes_of(plan: Plan) -> tuple[Axis, ...]:
    """A study's axes without the seed's; none of a single experiment."""
    if not plan.study:
        return ()
    document = parse_yaml(plan.text, plan.source)
    return tuple(axis for axis in parse_axes(document.data["matrix"], document.marks) if axis.path != SEED)


def _without_seed(cell: Cell) -> dict[str, Any]:
    return {key: value for key, value in cell.axes.items() if axis_path(key) != SEED}


def _label(cell: Cell) -> str:
    """The cell's label without its seed's part; whole where that part has a label of its own."""
    keys = list(cell.axes)
    place = next((number for number, key in enumerate(keys) if axis_path(key) == SEED), None)
    if place is None:
        return cell.label
    part = plain_label(keys[place], cell.axes[keys[place]])
    if cell.label == part:
        return ""
    if place == len(keys) - 1 and cell.label.endswith(f"-{part}"):
        return cell.label.removesuffix(f"-{part}")
    if place == 0 and cell.label.startswith(f"{part}-"):
        return cell.label.removeprefix(f"{part}-")
    return cell.label.replace(f"-{part}-", "-") if cell.label.count(f"-{part}-") == 1 else cell.label


def _refuse_varied(plan: Plan) -> None:
    if any(cell.axes.get(CASE) for cell in plan.cells):
        raise ConfigError(
            "cases with a label are for subquad train, which trains each; a search takes a --space instead "
            "(matrix.case=[base] leaves them out)"
        )


def _refuse_protocols(plan: Plan) -> None:
    for cell in plan.cells:
        protocol = cell.experiment.experiment.protocol
        if protocol != "honest":
            lacks = "selects on the test split" if protocol == "paper" else "has no validation split to select on"
            raise ConfigError(
                one_line(
                    f"protocol: got {protocol!r}, which {lacks}; a search needs protocol: honest "
                    f"(as in subquad tune {plan.name} protocol=honest)"
                )
            )


def _refuse_rules_of_seeds(plan: Plan) -> None:
    """The final study has other seeds, for which such a rule says nothing."""
    data = parse_yaml(plan.text, plan.source).data
    rules = [("cases", case.get("when", {})) for case in data.get("cases", [])]
    rules += [("exclude", when) for when in data.get("exclude", [])]
    for key, when in rules:
        if any(axis_path(axis) == SEED for axis in when):
            raise ConfigError(
                f"{key}: names seeds, and a search trains its winners with seeds of its own; leave the rule out"
            )

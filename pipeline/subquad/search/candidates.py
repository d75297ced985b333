"""What a study searches for: each of its cells without the seed. All candidates get the same space and budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment import Run, Study
from subquad.experiment.axes import CASE, axis_path, plain_label
from subquad.experiment.settings import KeyPath, Origin, Setting
from subquad.experiment.strict_yaml import parse_yaml
from subquad.search.materials import Timing
from subquad.search.trial import CostBy, Goal
from subquad.space import Space, builder

SEED: KeyPath = ("train", "seed")


@dataclass(frozen=True)
class Candidate:
    """One thing that is tuned.

    Attributes:
        label: names it and its folder: the labels of its cell, joined; of a single experiment its name.
        axes: the cell's coordinates without the seed.
        run: its experiment, with the first seed of the study.
        goal: the task's own metric, on the validation split, and the search's second objective.
        space: what is searched.
        timing: what steps and evaluations of its own experiment take; None where no setting of the search needs it.
    """

    label: str
    axes: dict[str, Any]
    run: Run
    goal: Goal
    space: Space = field(default_factory=lambda: Space(""))
    timing: Timing | None = None

    def laid(self, values: Mapping[str, Any]) -> Run:
        """Its experiment with settings laid over it, by dotted key.

        Raises:
            UserError: a plugin refuses them.
        """
        return laid(self.run, values)


def laid(run: Run, values: Mapping[str, Any]) -> Run:
    """A run's experiment with settings laid over it, by dotted key.

    Raises:
        UserError: a plugin refuses them.
    """
    return builder(run)([Setting(tuple(key.split(".")), one, Origin("")) for key, one in values.items()])


def candidates_of(study: Study, cost: CostBy = "none") -> tuple[Candidate, ...]:
    """The candidates of a study in the order of its cells; of a single experiment itself.

    Raises:
        ConfigError: its protocol leaves no validation split to select on, a rule is about seeds, it has `vary`, or two
            candidates have one label.
    """
    _refuse_protocols(study)
    _refuse_varied(study)
    if not study.single:
        _refuse_rules_of_seeds(study)
    first: dict[str, Run] = {}
    for run in study.runs:
        first.setdefault(repr(cell_of(run)), run)
    candidates = list[Candidate]()
    for run in first.values():
        label = "-".join(cell_of(run).values()) or study.name
        if label.lower() in {candidate.label.lower() for candidate in candidates}:
            raise ConfigError(f"two candidates have the label {label}; give their values other labels")
        axes = {key: value for key, value in run.axes.items() if axis_path(key) != SEED}
        candidates.append(Candidate(label, axes, run, _goal(run, cost)))
    return tuple(candidates)


def final_labels(candidate: Candidate, seeds: int) -> list[str]:
    """What the candidate's runs over the final seeds are called."""
    parts = [plain_label("seed", seed) for seed in range(seeds)]
    return ["-".join([*cell_of(candidate.run).values(), part]) for part in parts]


def cell_of(run: Run) -> dict[str, str]:
    """The label of its choice on each axis but that of the seed: by these a candidate is known."""
    return {key: label for key, label in run.labels.items() if axis_path(key) != SEED}


def _refuse_varied(study: Study) -> None:
    if any(run.axes.get(CASE) for run in study.runs):
        raise ConfigError(
            "cases with a label are for subquad train, which trains each; a search takes a --space instead "
            "(matrix.case=[base] leaves them out)"
        )


def _refuse_protocols(study: Study) -> None:
    for run in study.runs:
        protocol = run.experiment.protocol
        if protocol != "honest":
            lacks = "selects on the test split" if protocol == "paper" else "has no validation split to select on"
            raise ConfigError(
                f"protocol: got {protocol!r}, which {lacks}; a search needs protocol: honest "
                f"(as in subquad tune {study.name} protocol=honest)"
            )


def _refuse_rules_of_seeds(study: Study) -> None:
    """The final study has other seeds, for which such a rule says nothing."""
    data = parse_yaml(study.text, study.source).data
    rules = [("cases", case.get("when", {})) for case in data.get("cases", [])]
    rules += [("exclude", when) for when in data.get("exclude", [])]
    for key, when in rules:
        if any(axis_path(axis) == SEED for axis in when):
            raise ConfigError(
                f"{key}: names seeds, and a search trains its winners with seeds of its own; leave the rule out"
            )


def _goal(run: Run, cost: CostBy) -> Goal:
    task = run.goal
    return Goal(task.metric, task.mode, cost, task.shown(task.metric))

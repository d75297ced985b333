"""What a study searches for: each of its cells without the seed. All candidates get the same space and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment import Run, Study
from subquad.experiment.axes import CASE, axis_path, plain_label
from subquad.experiment.settings import KeyPath, Origin, Setting
from subquad.experiment.strict_yaml import parse_yaml
from subquad.search.materials import Timing
from subquad.search.trial import CostBy, Goal, Trial
from subquad.space import Space, builder

SEED: KeyPath = ("train", "seed")


@dataclass(frozen=True)
class Candidate:
    """One thing that is tuned.

    Attributes:
        label: names it and its folder: the cell's label without the seed; of a single experiment its name.
        axes: the cell's coordinates without the seed.
        run: its experiment, with the first seed of the study.
        goal: the task's own metric, on the validation split, and the search's second objective.
        space: what is searched.
        timing: what steps and evaluations of its own experiment take; None where no setting of the search needs it.
        warm: trials of another search that its sampler is told.
    """

    label: str
    axes: dict[str, Any]
    run: Run
    goal: Goal
    space: Space = field(default_factory=lambda: Space(""))
    timing: Timing | None = None
    warm: Sequence[Trial] = ()

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
        ConfigError: its protocol leaves no validation split to select on, a rule is about seeds, or it has `vary`.
    """
    _refuse_protocols(study)
    _refuse_varied(study)
    if not study.single:
        _refuse_rules_of_seeds(study)
    first: dict[str, Run] = {}
    for run in study.runs:
        first.setdefault(repr(without_seed(run)), run)
    runs = list(first.values())
    labels = [_label(run) or study.name for run in runs]
    unique = len({label.lower() for label in labels}) == len(labels)
    return tuple(
        Candidate(label if unique else run.label, without_seed(run), run, Goal(run.goal.metric, run.goal.mode, cost))
        for label, run in zip(labels, runs, strict=True)
    )


def without_seed(run: Run) -> dict[str, Any]:
    """Its choice on each axis but that of the seed."""
    return {key: value for key, value in run.axes.items() if axis_path(key) != SEED}


def _label(run: Run) -> str:
    """The cell's label without its seed's part; whole where that part has a label of its own."""
    keys = list(run.axes)
    place = next((number for number, key in enumerate(keys) if axis_path(key) == SEED), None)
    if place is None:
        return run.label
    part = plain_label(keys[place], run.axes[keys[place]])
    if run.label == part:
        return ""
    if place == len(keys) - 1 and run.label.endswith(f"-{part}"):
        return run.label.removesuffix(f"-{part}")
    if place == 0 and run.label.startswith(f"{part}-"):
        return run.label.removeprefix(f"{part}-")
    return run.label.replace(f"-{part}-", "-") if run.label.count(f"-{part}-") == 1 else run.label


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

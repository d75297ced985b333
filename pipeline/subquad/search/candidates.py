"""What a study searches for: each of its cells without the seed. All candidates get the same
space and budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from subquad.errors import ConfigError
from subquad.experiment import Run, Study
from subquad.experiment.axes import SEED, axis_path
from subquad.experiment.labels import plain_label
from subquad.preparation.size import cell_of
from subquad.search.timing import Timing
from subquad.search.trial import CostBy, Goal, Values
from subquad.space import Space, run_at


@dataclass(frozen=True)
class Candidate:
    """One thing that is tuned.

    Attributes:
        label: names it and its folder: the labels of its cell, joined; of a single experiment its
            name.
        axes: the cell's coordinates without the seed.
        run: its experiment, with the first seed of the study.
        goal: the task's own metric, on the validation split, and the search's second objective.
        space: what is searched.
        timing: what steps and evaluations of its own experiment take; None where no setting of the
            search needs it.
    """

    label: str
    axes: Values
    run: Run
    goal: Goal
    space: Space = field(default_factory=lambda: Space(""))
    timing: Timing | None = None

    def laid(self, values: Values) -> Run:
        """Its experiment with settings laid over it, by dotted key.

        Raises:
            UserError: a plugin refuses them.
        """
        return run_at(self.run, values)


_LACKS = {"paper": "selects on the test split", "fixed": "has no validation split to select on"}
"""Why a search can do nothing with a protocol."""


def candidates_of(study: Study, cost: CostBy = "none") -> tuple[Candidate, ...]:
    """The candidates of a study in the order of its cells; of a single experiment itself.

    Raises:
        ConfigError: its protocol leaves no validation split to select on, a rule is about seeds, or
            an axis changes settings one at a time.
    """
    candidates: dict[str, Candidate] = {}
    for run in study.runs:
        _refuse_unsearched(run)
        cell = cell_of(run)
        task = run.goal
        candidate = candidates.setdefault(
            repr(cell),
            Candidate(
                label="-".join(cell.values()) or study.name,
                axes={key: value for key, value in run.axes.items() if axis_path(key) != SEED},
                run=run,
                goal=Goal(task.metric, task.mode, cost, task.shown(task.metric)),
            ),
        )
        # the final study has other seeds, for which rules of some seeds say nothing
        seed = run.experiment.train.seed
        if candidate.run is not run and candidate.laid({"train.seed": seed}).digest != run.digest:
            raise ConfigError(
                f"run {run.label}: differs from that of another seed in more than the seed, and a "
                "search trains its winners with seeds of its own; leave that out"
            )
    return tuple(candidates.values())


def final_labels(candidate: Candidate, seeds: int) -> list[str]:
    """What the candidate's runs over the final seeds are called."""
    cell = cell_of(candidate.run).values()
    return ["-".join([*cell, plain_label("seed", seed)]) for seed in range(seeds)]


def _refuse_unsearched(run: Run) -> None:
    protocol = run.experiment.protocol
    if protocol in _LACKS:
        raise ConfigError(
            f"protocol: got {protocol!r}, which {_LACKS[protocol]}; a search needs protocol: "
            "honest (add protocol=honest to the command)"
        )
    for key, value in run.axes.items():
        if isinstance(value, dict) and value and not axis_path(key):
            raise ConfigError(
                f"matrix.{key}: what changes settings one at a time is for subquad train; a "
                f"search takes a --space instead (matrix.{key}=[LABEL] with one that sets "
                "nothing leaves the rest out)"
            )

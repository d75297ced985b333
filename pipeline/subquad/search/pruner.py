"""Which trial is ended early: Optuna's pruners, and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optuna import Study
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial
from pydantic import Field

from subquad.errors import ConfigError
from subquad.experiment.refusals import refusal, validated
from subquad.plugin import Config
from subquad.search.settings import PrunerName
from subquad.search.trial import Goal, Trial, Values


class _Median(Config):
    """Settings of MedianPruner."""

    n_startup_trials: int = Field(5, ge=0)
    n_warmup_steps: int = Field(10, ge=0)


class _Halving(Config):
    """Settings of SuccessiveHalvingPruner."""

    min_resource: int = Field(10, ge=1)
    reduction_factor: int = Field(3, ge=2)


PRUNERS: Mapping[PrunerName, tuple[type[BasePruner], type[Config]]] = {
    "none": (NopPruner, Config),
    "median": (MedianPruner, _Median),
    "asha": (SuccessiveHalvingPruner, _Halving),
}
"""Optuna's class, and its settings under its names.

Steps and resources are per cent of a trial's steps, so that trials of different lengths are
comparable.
"""


class Pruner:
    """Judges the trials of one candidate.

    Args:
        name: see `PRUNERS`.
        goal: what is better.
        settings: of the pruner, as the user gave them, by Optuna's names.

    Raises:
        ConfigError: a setting is wrong, or the goal has two objectives, which only "none" can do:
            by the metric alone it would end the cheap trials of the front.
    """

    def __init__(self, name: PrunerName, goal: Goal, settings: Values | None = None):
        make, schema = PRUNERS[name]
        found, faults = validated(schema, settings or {}, ("pruner",))
        if found is None:
            raise refusal(faults)
        if goal.cost != "none" and name != "none":
            raise ConfigError(
                f"pruner: {name} looks at {goal.metric} alone; with a second objective write none"
            )
        self.name = name
        given = found.model_dump()
        self._startup = given.get("n_startup_trials", 0)
        self._pruner = make(**given)

    def prunes(self, study: Study, trial: FrozenTrial, known: Sequence[Trial]) -> bool:
        """Whether a trial of a study shall end after its newest value.

        Args:
            known: all trials; of those in the study some are told that did not finish.
        """
        finished = sum(other.state == "finished" for other in known)
        return self._pruner.prune(study, trial) and finished >= self._startup

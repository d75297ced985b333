"""Tree-structured Parzen estimator, by Optuna: a model of which points are good, made anew for each suggestion.

Reference: Bergstra et al., "Algorithms for hyper-parameter optimization", NIPS 2011; with two objectives Ozaki et al.,
"Multiobjective tree-structured Parzen estimator", JAIR 2022. Departures: see `modelled.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from subquad.plugin import Config, param
from subquad.search.searcher import Goal
from subquad.search.searchers.modelled import Modelled
from subquad.search.searchers.optuna_trials import frozen, suggested
from subquad.search.trial import Trial
from subquad.space import Dimension, Space
from subquad.space.draw import word

if TYPE_CHECKING:
    import optuna


class TPESettings(Config):
    startup: int = param(3, ge=1, meaning="trials with a value before the model decides; until then points are random")
    candidates: int = param(24, ge=1, meaning="points of which the model takes the most promising one")


class TPE(Modelled):
    """Suggests where the model expects the best values; two objectives where the goal has a cost.

    Trials that run count as bad ones ("constant liar"), so that several asked for at once differ; failed and infeasible
    ones as the worst.

    Raises:
        UserError: Optuna is not installed.
    """

    name = "tpe"
    schema = TPESettings

    def __init__(self, space: Space, goal: Goal, seed: int, settings: TPESettings | None = None):
        self.settings = settings or TPESettings()
        super().__init__(space, goal, seed, self.settings.startup)

    def study(self, number: int, known: Sequence[Trial]) -> optuna.Study:
        import optuna

        sampler = optuna.samplers.TPESampler(
            seed=word(self.seed, number, "tpe", 0) % 2**32,
            n_startup_trials=0,
            n_ei_candidates=self.settings.candidates,
            multivariate=True,
            group=True,  # dimensions with a `when` are modelled where they are searched
            constant_liar=True,
        )
        directions = [optuna.study.StudyDirection.MINIMIZE] * (1 if self.goal.cost == "none" else 2)
        study = optuna.create_study(sampler=sampler, directions=directions)
        study.add_trials(frozen(self.space, self.goal, known))
        return study

    def value(self, asked: optuna.Trial, dim: Dimension) -> Any:
        return suggested(asked, dim)

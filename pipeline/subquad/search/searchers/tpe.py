"""Tree-structured Parzen estimator, by Optuna: a model of which points are good, made anew for each suggestion.

Reference: Bergstra et al., "Algorithms for hyper-parameter optimization", NIPS 2011; with two objectives Ozaki et al.,
"Multiobjective tree-structured Parzen estimator", JAIR 2022. Departures: random points for the start come from the
space's own draws; of points that were tried, or break a constraint, another one is asked for.

Optuna is imported when a searcher is made, nowhere else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from subquad.errors import UserError
from subquad.plugin import Config, param
from subquad.search.searcher import Goal, Searcher
from subquad.search.searchers.fresh import fresh, identity, tried
from subquad.search.searchers.optuna_trials import fits, frozen, suggested
from subquad.search.trial import Trial, best_of
from subquad.space import Point, Space
from subquad.space.draw import word

if TYPE_CHECKING:
    from optuna import Study

MAX_ASKED = 20
"""Points that the model is asked for before a random one is taken."""


class TPESettings(Config):
    startup: int = param(5, ge=1, meaning="trials with a value before the model decides; until then points are random")
    candidates: int = param(24, ge=1, meaning="points of which the model takes the most promising one")


class TPE(Searcher):
    """Suggests where the model expects the best values; two objectives where the goal has a cost.

    Trials that run count as bad ones ("constant liar"), so that several asked for at once differ; failed and infeasible
    ones as the worst. Trials whose points are none of this space are left out.

    Raises:
        UserError: Optuna is not installed.
    """

    schema = TPESettings

    def __init__(self, space: Space, goal: Goal, seed: int, settings: TPESettings | None = None):
        super().__init__(space, goal, seed)
        self.settings = settings or TPESettings()
        _require_optuna()

    def suggest(self, number: int, known: Sequence[Trial]) -> Point | None:
        usable = [trial for trial in known if fits(self.space, trial.point)]
        seen = tried(usable)
        valued = sum(trial.ended and best_of(trial.curve, self.goal.mode) is not None for trial in usable)
        point = self._modelled(number, usable, seen) if valued >= self.settings.startup else None
        return point or fresh(self.space, self.seed, number, seen)

    def _modelled(self, number: int, known: Sequence[Trial], seen: Set[str]) -> Point | None:
        with _quiet():
            study = self._study(number, known)
            for _ in range(MAX_ASKED):
                asked = study.ask()  # a refused one stays as a running trial, which drives the next one away from it
                point = self.space.compose(lambda dim, asked=asked: suggested(asked, dim))
                if self.space.keeps(point) and identity(point) not in seen:
                    return point
        return None

    def _study(self, number: int, known: Sequence[Trial]) -> Study:
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


def _require_optuna() -> None:
    try:
        with _silent_warnings():
            import optuna  # noqa: F401
    except ImportError as error:
        raise UserError("searcher tpe needs Optuna: pip install 'subquad[tune]'") from error


@contextmanager
def _silent_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log, and its warnings that multivariate and group are experimental."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with _silent_warnings():
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)

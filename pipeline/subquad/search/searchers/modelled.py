"""What searchers with a model of Optuna's share: random points for a start, then points that the model asks for.

Optuna is imported when a searcher is made, nowhere else.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from subquad.errors import UserError
from subquad.search.searcher import Goal, Searcher
from subquad.search.searchers.fresh import fresh, identity, tried
from subquad.search.searchers.optuna_trials import fits
from subquad.search.trial import Trial, best_of
from subquad.space import Dimension, Point, Space

if TYPE_CHECKING:
    import optuna

MAX_ASKED = 20
"""Points that the model is asked for before a random one is taken."""


class Modelled(Searcher):
    """Suggests where a model of the trials expects the best values, made anew for every suggestion.

    Random points for the start come from the space's own draws. Of points that were tried, or break a constraint,
    another one is asked for. Trials whose points are none of this space are left out.

    Raises:
        UserError: Optuna is not installed.
    """

    name: str

    def __init__(self, space: Space, goal: Goal, seed: int, startup: int):
        super().__init__(space, goal, seed)
        self.startup = startup
        _require_optuna(self.name)

    def suggest(self, number: int, known: Sequence[Trial]) -> Point | None:
        usable = [trial for trial in known if fits(self.space, trial.point)]
        seen = tried(usable)
        valued = sum(trial.ended and best_of(trial.curve, self.goal.mode) is not None for trial in usable)
        point = self._modelled(number, usable, seen) if valued >= self.startup else None
        return point or fresh(self.space, self.seed, number, seen)

    def _modelled(self, number: int, known: Sequence[Trial], seen: Set[str]) -> Point | None:
        with _quiet():
            study = self.study(number, known)
            for _ in range(MAX_ASKED):
                asked = self.ask(study)
                point = self.space.compose(lambda dim, asked=asked: self.value(asked, dim))
                if self.space.keeps(point) and identity(point) not in seen:
                    return point
                self.turned_down(study, asked)
        return None

    @abstractmethod
    def study(self, number: int, known: Sequence[Trial]) -> optuna.Study:
        """An Optuna study that knows the trials, and what samples for it.

        Args:
            number: of the trial that is suggested, for the sampler's seed.
            known: trials with points of the space.
        """

    def ask(self, study: optuna.Study) -> optuna.Trial:
        """A new trial of the study."""
        return study.ask()

    @abstractmethod
    def value(self, asked: optuna.Trial, dim: Dimension) -> Any:
        """What the study suggests for a dimension, as a value of it."""

    def turned_down(self, study: optuna.Study, asked: optuna.Trial) -> None:
        """Tell the study that a point will not do, where it does not keep away from points that were asked for."""


def _require_optuna(name: str) -> None:
    try:
        with _silent_warnings():
            import optuna  # noqa: F401
    except ImportError as error:
        raise UserError(f"searcher {name} needs Optuna: pip install 'subquad[tune]'") from error


@contextmanager
def _silent_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log, and its warnings that parts of it are experimental."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with _silent_warnings():
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)

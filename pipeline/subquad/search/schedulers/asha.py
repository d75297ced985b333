"""Asynchronous successive halving, the variant that stops trials.

Reference: Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020. Departure: a trial is not
paused at a rung until others got there; it is judged at once, among those that were there before it (as Optuna's
`SuccessiveHalvingPruner` does). So a trial that comes early may go on where it would not have later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from subquad.plugin import Config, param
from subquad.search.scheduler import Scheduler
from subquad.search.searcher import Goal
from subquad.search.trial import Evaluation, Trial, better


class ASHASettings(Config):
    eta: int = param(3, ge=2, meaning="of eta trials at a rung one goes on; each rung is eta times the one before")
    grace: float = param(0.1, gt=0, lt=1, meaning="the first rung, a fraction of a trial's steps")


class ASHA(Scheduler):
    """Stops a trial at the first evaluation at or after a rung, unless its value there is among the best.

    Rungs stand at `grace * eta**k` of a trial's steps, k = 0, 1, ... Of n values at a rung, its own among them, the
    best n // eta go on, of fewer than eta the best one. Of equal values the one with the lower loss is better; where
    that is equal too, both go on. A value that is not a number never does. An evaluation that passes several rungs is
    judged at the last of them.
    """

    schema = ASHASettings

    def __init__(self, goal: Goal, settings: ASHASettings | None = None):
        super().__init__(goal)
        self.settings = settings or ASHASettings()

    def reason_to_stop(self, number: int, known: Sequence[Trial]) -> str:
        trial = next(one for one in known if one.number == number)
        rung = self._reached(trial)
        if rung is None:
            return ""
        value = trial.curve[-1].value
        where = f"rung {_step(rung, trial)} of {trial.total_steps} steps: "
        if math.isnan(value):
            return f"{where}the value is not a number"
        others = [there for one in known if one.number != number and (there := _at(rung, one))]
        kept = max(1, (len(others) + 1) // self.settings.eta)
        ahead = sum(better(other, trial.curve[-1], self.goal.mode) for other in others)
        return f"{where}{value:.5g} is not among the best {kept} of {len(others) + 1}" if ahead >= kept else ""

    def _reached(self, trial: Trial) -> float | None:
        """The last rung that the newest evaluation is the first to reach; None at the end of a trial too."""
        newest = trial.curve[-1].step
        before = trial.curve[-2].step if len(trial.curve) > 1 else 0
        if newest >= trial.total_steps:
            return None
        return next((rung for rung in reversed(self._rungs()) if before < _step(rung, trial) <= newest), None)

    def _rungs(self) -> list[float]:
        """As fractions of a trial's steps."""
        grace, eta = self.settings.grace, self.settings.eta
        return [grace * eta**k for k in range(math.ceil(math.log(1 / grace, eta)))]


def _step(rung: float, trial: Trial) -> int:
    return math.ceil(round(rung * trial.total_steps, 6))  # 0.1 * 3 of 10 steps is step 3, not 4


def _at(rung: float, trial: Trial) -> Evaluation | None:
    """The evaluation by which a trial was judged at a rung; None where it did not get there."""
    if not trial.total_steps:
        return None
    return next((one for one in trial.curve if one.step >= _step(rung, trial)), None)

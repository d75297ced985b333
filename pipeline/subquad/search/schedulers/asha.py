"""Asynchronous successive halving, the variant that stops trials.

Reference: Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020. Departures: a trial is not
paused at a rung until others got there; it is judged at once, among those that were there before it (as Optuna's
`SuccessiveHalvingPruner` does), so a trial that comes early may go on where it would not have later. And a trial goes
on where it is behind by little, measured by what the search has learned at all: on recorded curves the rule without
that lost to no rule wherever runs differ by chance, or not yet, at the first rungs (docs/how-to/search.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from subquad.plugin import Config, param
from subquad.search.objective import falling, merit
from subquad.search.scheduler import Scheduler
from subquad.search.searcher import Goal
from subquad.search.trial import Evaluation, Trial, better


class ASHASettings(Config):
    eta: int = param(3, ge=2, meaning="of eta trials at a rung one goes on; each rung is eta times the one before")
    grace: float = param(0.1, gt=0, lt=1, meaning="the first rung, a fraction of a trial's steps")
    margin: float = param(
        0.1,
        ge=0,
        le=1,
        meaning="how far behind a trial may be, as a fraction of what the best trial has learned so far",
    )


class ASHA(Scheduler):
    """Stops a trial at the first evaluation at or after a rung, unless its value there is among the best, or nearly.

    Rungs stand at `grace * eta**k` of a trial's steps, k = 0, 1, ... Of n values at a rung, its own among them, the
    best n // eta go on, of fewer than eta all. Others go on where the last of these is better by no more than `margin`
    times what was learned so far: the best value of any trial at any step, less the median of the trials' first values.
    Without a margin, of equal values the one with the lower loss is better; where that is equal too, both go on. A
    value that is not a number never does. An evaluation that passes several rungs is judged at the last of them.
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
        count = len(others) + 1
        kept = count // self.settings.eta
        ahead = sorted(
            merit(other, self.goal.mode)[0] for other in others if better(other, trial.curve[-1], self.goal.mode)
        )
        if not kept or len(ahead) < kept:
            return ""
        behind = falling(value, self.goal.mode) - ahead[kept - 1]
        margin = self.settings.margin * self._learned(known)
        if margin and behind <= margin:
            return ""
        return f"{where}{value:.5g} is not among the best {kept} of {count}" + (
            f", nor within {margin:.3g} of them" if margin else ""
        )

    def _learned(self, known: Sequence[Trial]) -> float:
        """The best value there is, less the median of the trials' first values; 0 where it is not better."""
        values = [[falling(one.value, self.goal.mode) for one in trial.curve] for trial in known]
        first = [curve[0] for curve in values if curve and math.isfinite(curve[0])]
        best = min((value for curve in values for value in curve if math.isfinite(value)), default=0.0)
        return max(0.0, median(first) - best) if first else 0.0

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

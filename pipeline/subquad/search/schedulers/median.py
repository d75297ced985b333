"""The median stopping rule.

Reference: Golovin et al., "Google Vizier: a service for black-box optimization", KDD 2017, section 3.2. Departure: not
only completed trials are compared with, but every one that got as far, also one that was stopped there or still runs;
else trials that were stopped would be forgotten, and the median be that of the survivors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from subquad.plugin import Config, param
from subquad.search.objective import falling
from subquad.search.scheduler import Scheduler
from subquad.search.searcher import Goal
from subquad.search.trial import Trial, best_of


class MedianSettings(Config):
    grace: float = param(0.1, ge=0, lt=1, meaning="no trial is stopped before this fraction of its steps")
    min_trials: int = param(5, ge=1, meaning="other trials that got as far, before one is stopped")


class Median(Scheduler):
    """Stops a trial whose best value so far is worse than the median of the other trials' averages up to there.

    A trial without any value after the grace period is stopped as well.
    """

    schema = MedianSettings

    def __init__(self, goal: Goal, settings: MedianSettings | None = None):
        super().__init__(goal)
        self.settings = settings or MedianSettings()

    def reason_to_stop(self, number: int, known: Sequence[Trial]) -> str:
        trial = next(one for one in known if one.number == number)
        step, total = trial.curve[-1].step, trial.total_steps
        if step >= total or step < self.settings.grace * total:
            return ""
        best = best_of(trial.curve, self.goal.mode)
        if best is None:
            return f"step {step} of {total}: no value is a number"
        averages = [_average(one, step, total) for one in known if one.number != number]
        averages = [one for one in averages if one is not None]
        if len(averages) < self.settings.min_trials:
            return ""
        middle = median(averages)
        if falling(best.value, self.goal.mode) <= falling(middle, self.goal.mode):
            return ""
        what = f"the median of {len(averages)} trials' averages"
        return f"step {step} of {total}: best value {best.value:.5g} is worse than {middle:.5g}, {what}"


def _average(trial: Trial, step: int, total: int) -> float | None:
    """The average of a trial's values up to `step` of `total`; None where it did not get there or has no values."""
    so_far = [one for one in trial.curve if one.step * total <= step * trial.total_steps]
    values = [one.value for one in so_far if math.isfinite(one.value)]
    got_there = bool(trial.curve) and trial.curve[-1].step * total >= step * trial.total_steps > 0
    return fmean(values) if got_there and values else None

"""How much each subject of a search may spend: a number of trials, training time, or floating-point operations."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import one_line
from subquad.search.trial import Trial

Unit = Literal["trials", "seconds", "flops"]

_WORDS = "such as 20-trials, 2h, 30m, 90s or 1e15flops"
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_FORM = re.compile(rf"{_NUMBER}(-trials?|h|m|s|flops)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_SLACK = 1 + 1e-9
"""Sums of floats may exceed the whole by a rounding error."""


@dataclass(frozen=True)
class Budget:
    """What one subject may spend; every subject of a search gets the same.

    Attributes:
        unit: what is counted. Infeasible points cost nothing, failed and pruned trials what they used.
        amount: trials, seconds of training, or counted FLOPs.
    """

    unit: Unit
    amount: float

    def admits(self, known: Sequence[Trial], cost: Trial) -> bool:
        """Whether one more trial fits.

        Args:
            known: the subject's trials so far; those that still run are charged what they are expected to use.
            cost: the next one; `flops` and `seconds` are what it is expected to use.
        """
        if self.unit == "trials":
            return sum(one.state != "infeasible" for one in known) < self.amount
        return sum(self._charge(one) for one in known) + getattr(cost, self.unit) <= self.amount * _SLACK

    def _charge(self, trial: Trial) -> float:
        return 0.0 if trial.state == "infeasible" else getattr(trial, self.unit)

    def __str__(self) -> str:
        if self.unit == "trials":
            return f"{self.amount:g} trial{'' if self.amount == 1 else 's'}"
        return f"{self.amount:g} s of training" if self.unit == "seconds" else f"{self.amount:g} FLOPs"


def parse_budget(text: str) -> Budget:
    """A budget as typed: `20-trials`, `2h`, `30m`, `90s`, `1e15flops`.

    Raises:
        ConfigError: it is none, or too small for one trial.
    """
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise ConfigError(one_line(f"--budget: got {shown(text)}, must be {_WORDS}"))
    amount, unit = float(found[1]), found[2]
    if not math.isfinite(amount):
        raise ConfigError(one_line(f"--budget: got {shown(text)}, which is no finite number; use {_WORDS}"))
    if amount <= 0:
        raise ConfigError(one_line(f"--budget: got {shown(text)}, which is too small for one trial; use {_WORDS}"))
    if unit in _SECONDS:
        return Budget("seconds", amount * _SECONDS[unit])
    if unit == "flops":
        return Budget("flops", amount)
    if amount != int(amount):
        raise ConfigError(one_line(f"--budget: got {shown(text)}, must be a whole number of trials"))
    return Budget("trials", amount)

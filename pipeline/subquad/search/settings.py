"""What a search was asked for, apart from the experiment: the options of `subquad tune`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from subquad.errors import ConfigError, RunError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import one_line
from subquad.search.trial import CostBy, Trial
from subquad.suggest import did_you_mean

MatchBy = Literal["none", "flops", "params", "time"]
MAX_SEED = 2**32 - 1
Unit = Literal["trials", "seconds", "flops"]

_WORDS = "such as 20-trials, 2h, 30m, 90s or 1e15flops"
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_FORM = re.compile(rf"{_NUMBER}(-trials?|h|m|s|flops)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_SLACK = 1 + 1e-9
"""Sums of floats may exceed the whole by a rounding error."""


@dataclass(frozen=True)
class Budget:
    """What one candidate may spend; every candidate of a search gets the same.

    Attributes:
        unit: what is counted. Infeasible points cost nothing, failed and pruned trials what they used.
        amount: trials, seconds of training, or counted FLOPs.
    """

    unit: Unit
    amount: float

    def admits(self, known: Sequence[Trial], cost: Trial) -> bool:
        """Whether one more trial fits.

        Args:
            known: the candidate's trials so far; those that still run are charged what they are expected to use.
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


@dataclass(frozen=True)
class Settings:
    """A search's settings; they never change after its start.

    Attributes:
        space: names of search spaces, joined by `+`.
        sampler: what suggests points.
        pruner: what ends hopeless trials early.
        budget: of each candidate, as typed.
        match: what all trials of all candidates have alike, besides the budget.
        cost: a second objective; the samplers tpe and gp look for the front of both.
        final_seeds: the winners are trained anew with the seeds 0 .. final_seeds-1.
        seed: of the search.
        seeds_per_trial: runs of each trial, with the experiment's seed and those after it; the mean of their best
            evaluations is what counts.
        points: given ones, tried first; settings that they leave out are drawn.
        warm_start: folder of another search, whose trials the sampler is told.
        sampler_settings, pruner_settings: where they are not the defaults, by Optuna's names.
    """

    space: str
    sampler: str = "random"
    pruner: str = "none"
    budget: str = "20-trials"
    match: MatchBy = "none"
    cost: CostBy = "none"
    final_seeds: int = 5
    seed: int = 0
    seeds_per_trial: int = 1
    points: Sequence[Mapping[str, Any]] = ()
    warm_start: str = ""
    sampler_settings: Mapping[str, Any] = field(default_factory=dict)
    pruner_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_budget(self.budget)
        _one_of("--match", self.match, get_args(MatchBy))
        _one_of("--cost", self.cost, get_args(CostBy))
        if self.final_seeds < 1:
            raise ConfigError(
                f"--final-seeds: got {self.final_seeds}, must be >= 1, as only trained winners meet the test split"
            )
        if self.seeds_per_trial < 1:
            raise ConfigError(f"--seeds-per-trial: got {self.seeds_per_trial}, must be >= 1")
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"--seed: got {self.seed}, must be from 0 to {MAX_SEED}")

    @property
    def limit(self) -> Budget:
        return parse_budget(self.budget)

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"points": [dict(one) for one in self.points]}


def _one_of(option: str, given: str, there: Sequence[str]) -> None:
    if given not in there:
        message = f"{option}: got {shown(given)}, must be one of {', '.join(there)}{did_you_mean(given, there)}"
        raise ConfigError(one_line(message))


def same_as_stored(stored: Settings, given: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than a search was started with.

    Args:
        given: options that were typed beside `--resume`, by name.

    Raises:
        RunError: the first difference.
    """
    for name, value in _differing(stored, given):
        option = name.replace("_", " ") if name.endswith("_settings") else f"--{name.replace('_', '-')}"
        raise RunError(
            one_line(
                f"{option}: the search was started with {_words(getattr(stored, name))}, got {_words(value)}; "
                "leave it out to resume, or start a new search"
            )
        )


def _words(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else shown(value)


def _differing(stored: Settings, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    known = {one.name for one in fields(Settings)}
    yield from ((name, value) for name, value in given.items() if name in known and value != getattr(stored, name))

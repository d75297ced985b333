"""What a search was asked for, apart from the experiment: the options of `subquad tune`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Literal, get_args

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import Setting, shown_target
from subquad.experiment.sources import parse_overrides
from subquad.experiment.strict_yaml import read_yaml
from subquad.search.trial import CostBy, Trial, Values
from subquad.space import Point
from subquad.suggest import did_you_mean

KEYS = {
    "sampler.seed": "seed",
    "trial.seeds": "seeds_per_trial",
    "trial.match": "match",
    "final.seeds": "final_seeds",
}
"""Settings of a search that the command line takes as `KEY=VALUE`, and what `Settings` calls
them.
"""
PRUNER = "pruner"
"""Where its own settings stand, by Optuna's names."""
MatchBy = Literal["none", "flops"]
SamplerName = Literal["random", "grid", "tpe", "gp"]
PrunerName = Literal["none", "median", "asha"]
MAX_SEED = 2**32 - 1
LENGTH_KEYS = ("train.epochs", "train.steps", "train.eval_every_epochs", "train.eval_every_steps")
"""Settings that a number of steps decides."""
Unit = Literal["trials", "seconds", "flops"]

_WORDS = "such as 20-trials, 2h, 30m, 90s or 1e15flops"
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_UNITS: dict[str, tuple[Unit, float]] = {
    "-trials": ("trials", 1.0),
    "-trial": ("trials", 1.0),
    "h": ("seconds", 3600.0),
    "m": ("seconds", 60.0),
    "s": ("seconds", 1.0),
    "flops": ("flops", 1.0),
}
_FORM = re.compile(rf"{_NUMBER}({'|'.join(_UNITS)})")
_SLACK = 1 + 1e-9
"""Sums of floats may exceed the whole by a rounding error."""


def keyed(settings: Iterable[Setting]) -> Values:
    """Settings by dotted key."""
    return {".".join(map(str, setting.path)): setting.value for setting in settings}


@dataclass(frozen=True)
class Budget:
    """What one candidate may spend; every candidate of a search gets the same.

    Attributes:
        unit: what is counted. Infeasible points cost nothing, failed and pruned trials what they
            used.
        amount: trials, seconds of training, or counted FLOPs.
    """

    unit: Unit
    amount: float

    @classmethod
    def parse(cls, text: str) -> Budget:
        """A budget as typed: `20-trials`, `2h`, `30m`, `90s`, `1e15flops`.

        Raises:
            ConfigError: it is none, or too small for one trial.
        """

        def wrong(what: str) -> ConfigError:
            return ConfigError(f"--budget: got {shown(text)}, {what}")

        found = _FORM.fullmatch(text.strip())
        if not found:
            raise wrong(f"must be {_WORDS}")
        amount = float(found[1])
        unit, factor = _UNITS[found[2]]
        if not math.isfinite(amount):
            raise wrong(f"which is no finite number; use {_WORDS}")
        if amount <= 0:
            raise wrong(f"which is too small for one trial; use {_WORDS}")
        if unit == "trials" and amount != int(amount):
            raise wrong("must be a whole number of trials")
        return cls(unit, amount * factor)

    def admits(self, known: Sequence[Trial], cost: Trial) -> bool:
        """Whether one more trial fits.

        Args:
            known: the candidate's trials so far; those that still run are charged what they are
                expected to use.
            cost: the next one. What is not known fits no budget.
        """
        started = [trial for trial in known if trial.state != "infeasible"]
        if self.unit == "trials":
            return len(started) < self.amount
        of_unit = attrgetter(self.unit)
        used = [of_unit(trial) for trial in (*started, cost)]
        return None not in used and sum(used) <= self.amount * _SLACK

    @property
    def unit_words(self) -> str:
        """What is counted, as messages say it."""
        trials = "trial" if self.amount == 1 else "trials"
        return {"trials": trials, "seconds": "s of training", "flops": "FLOPs"}[self.unit]

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit_words}"


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
        seeds_per_trial: runs of each trial, with the experiment's seed and those after it; the mean
            of their best evaluations is what counts.
        points: given ones, tried first; settings that they leave out are drawn.
        pruner_settings: where they are not the defaults, by Optuna's names.
    """

    space: str
    sampler: SamplerName = "random"
    pruner: PrunerName = "none"
    budget: str = "20-trials"
    match: MatchBy = "none"
    cost: CostBy = "none"
    final_seeds: int = 5
    seed: int = 0
    seeds_per_trial: int = 1
    points: Sequence[Values] = ()
    pruner_settings: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        Budget.parse(self.budget)
        choices = (
            ("--sampler", self.sampler, SamplerName),
            ("--pruner", self.pruner, PrunerName),
            ("trial.match", self.match, MatchBy),
            ("--cost", self.cost, CostBy),
        )
        for option, given, known in choices:
            words = get_args(known)
            if given not in words:
                raise ConfigError(
                    f"{option}: got {shown(given)}, must be one of {', '.join(words)}"
                    f"{did_you_mean(given, words)}"
                )
        if self.final_seeds < 1:
            raise ConfigError(
                f"final.seeds: got {self.final_seeds}, must be >= 1, as only trained winners meet "
                "the test split"
            )
        if self.seeds_per_trial < 1:
            raise ConfigError(f"trial.seeds: got {self.seeds_per_trial}, must be >= 1")
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"sampler.seed: got {self.seed}, must be from 0 to {MAX_SEED}")

    @property
    def limit(self) -> Budget:
        return Budget.parse(self.budget)

    def values(self) -> Values:
        return asdict(self) | {"points": [dict(point) for point in self.points]}


def parse_settings(given: Sequence[Setting]) -> Values:
    """Settings of a search, by what `Settings` calls them, from `KEY=VALUE` of the command line.

    Raises:
        ConfigError: a search has no such setting, or it has another type.
    """
    parsed: Values = {}
    for key, value in keyed(given).items():
        part, _, name = key.partition(".")
        if part == PRUNER:
            parsed.setdefault("pruner_settings", {})[name] = value
            continue
        if key not in KEYS:
            hint = ", ".join(KEYS) + did_you_mean(key, KEYS)
            raise ConfigError(f"{key}: unknown setting of a search; there is {hint}")
        if key != "trial.match" and type(value) is not int:
            raise ConfigError(f"{key}: got {shown(value)}, must be a whole number")
        parsed[KEYS[key]] = "none" if value is None else value
    return parsed


def parse_points(given: Sequence[str], cwd: Path) -> list[Point]:
    """Points as they are typed: `"train.lr=1e-3 train.batch_size=8"`, or a YAML file with a list of
    mappings.

    Raises:
        ConfigError: one is neither.
    """
    points: list[Point] = []
    for text in given:
        if "=" in text:
            # a list may have blanks
            points.append(keyed(parse_overrides(re.split(r"\s+(?=\S+=)", text.strip()), cwd)))
            continue
        name = shown_target(text)
        listed = read_yaml(cwd / text, name)
        entries = listed if isinstance(listed, list) else [None]
        if not all(isinstance(entry, dict) and entry for entry in entries):
            raise ConfigError(
                f"--points {name}: must be a list of mappings, as in [{{train.lr: 1e-3}}]"
            )
        points += listed
    return points

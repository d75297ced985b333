"""What a search was asked for, apart from the experiment: the options of `subquad tune`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from subquad.errors import ConfigError, RunError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import one_line
from subquad.search.budget import Budget, parse_budget
from subquad.suggest import did_you_mean

MatchBy = Literal["none", "flops", "params", "time"]
CostBy = Literal["none", "seconds", "flops"]
MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class Settings:
    """A search's settings; they never change after its start.

    Attributes:
        space: names of search spaces, joined by `+`.
        searcher: what suggests points.
        scheduler: what ends hopeless trials early.
        budget: of each subject, as typed.
        match: what all trials of all subjects have alike, besides the budget.
        cost: a second objective, which the searcher tpe looks at.
        final_seeds: the winners are trained anew with the seeds 0 .. final_seeds-1.
        seed: of the search.
        searcher_settings, scheduler_settings: where they are not the defaults, by name.
    """

    space: str
    searcher: str = "random"
    scheduler: str = "none"
    budget: str = "20-trials"
    match: MatchBy = "none"
    cost: CostBy = "none"
    final_seeds: int = 5
    seed: int = 0
    searcher_settings: Mapping[str, Any] = field(default_factory=dict)
    scheduler_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_budget(self.budget)
        _one_of("--match", self.match, get_args(MatchBy))
        _one_of("--cost", self.cost, get_args(CostBy))
        if self.final_seeds < 1:
            raise ConfigError(
                f"--final-seeds: got {self.final_seeds}, must be >= 1, as only trained winners meet the test split"
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"--seed: got {self.seed}, must be from 0 to {MAX_SEED}")

    @property
    def limit(self) -> Budget:
        return parse_budget(self.budget)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


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

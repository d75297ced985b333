"""Schedulers by name: `scheduler("asha", goal, {"eta": 4})`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.settings import Marks
from subquad.search.choose import named, settled
from subquad.search.scheduler import Scheduler
from subquad.search.schedulers.asha import ASHA
from subquad.search.schedulers.median import Median
from subquad.search.schedulers.never import Never
from subquad.search.searcher import Goal

SCHEDULERS: dict[str, type[Never] | type[ASHA] | type[Median]] = {"none": Never, "asha": ASHA, "median": Median}


def scheduler(
    name: str, goal: Goal, settings: Mapping[str, Any] | None = None, *, marks: Marks | None = None
) -> Scheduler:
    """The scheduler of a name.

    Args:
        name: none, asha or median.
        goal: what is better.
        settings: as the user gave them; see the schedulers' schemas.
        marks: where they were given, for messages.

    Raises:
        ConfigError: there is no such scheduler, a setting is wrong, or the goal has two objectives, which only "none"
            can do: by the metric alone it would end the cheap trials of the front.
    """
    kind = named("scheduler", name, SCHEDULERS)
    if goal.cost != "none" and kind is not Never:
        raise ConfigError(f"scheduler: {name} looks at {goal.metric} alone; with a second objective write none")
    return kind(goal, settled("scheduler", kind.schema, settings or {}, marks))  # pyright: ignore[reportArgumentType]


__all__ = ["ASHA", "SCHEDULERS", "Median", "Never", "scheduler"]

"""Searchers by name: `searcher("tpe", space, goal, seed, {"startup": 5})`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subquad.experiment.settings import Marks
from subquad.search.choose import named, settled
from subquad.search.searcher import Goal, Searcher
from subquad.search.searchers.gp import GP
from subquad.search.searchers.grid import Grid
from subquad.search.searchers.random import Random
from subquad.search.searchers.tpe import TPE
from subquad.space import Space

SEARCHERS: dict[str, type[Random] | type[Grid] | type[TPE] | type[GP]] = {
    "random": Random,
    "grid": Grid,
    "tpe": TPE,
    "gp": GP,
}


def searcher(
    name: str,
    space: Space,
    goal: Goal,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    *,
    marks: Marks | None = None,
) -> Searcher:
    """The searcher of a name.

    Args:
        name: random, grid, tpe or gp.
        space: what is searched.
        goal: what is better.
        seed: of the search, 0 to 2**64 - 1.
        settings: as the user gave them; see the searchers' schemas.
        marks: where they were given, for messages.

    Raises:
        ConfigError: there is no such searcher, a setting is wrong, or the space is none for it.
        UserError: Optuna is not installed.
    """
    kind = named("searcher", name, SEARCHERS)
    return kind(space, goal, seed, settled("searcher", kind.schema, settings or {}, marks))  # pyright: ignore[reportArgumentType]


__all__ = ["GP", "SEARCHERS", "TPE", "Grid", "Random", "searcher"]

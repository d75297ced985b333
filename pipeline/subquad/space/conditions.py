"""Conditions among dimensions: their order, circles, and which dimensions can ever be searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from subquad.experiment.settings import problem
from subquad.space.dimension import Condition, Dimension

MAX_COMBINATIONS = 10_000
"""Of values that conditions name; with more, a condition is taken as possible."""


def parents_first(dims: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions in their order, but each after those that its conditions name.

    Raises:
        ConfigError: conditions in a circle.
    """
    by_path = {dim.path: dim for dim in dims}
    done: dict[str, Dimension] = {}

    def visit(dim: Dimension, above: tuple[str, ...]) -> None:
        if dim.path in above:
            circle = " -> ".join((*above[above.index(dim.path) :], dim.path))
            raise problem(dim.key_path, f"when goes in a circle ({circle})", {(): dim.origin})
        for condition in dim.when:
            if condition.key in by_path and condition.key not in done:
                visit(by_path[condition.key], (*above, dim.path))
        done.setdefault(dim.path, dim)

    for dim in dims:
        visit(dim, ())
    return tuple(done.values())


def ever_active(dim: Dimension, dims: Sequence[Dimension], rest: Mapping[str, Any]) -> bool:
    """Whether some values of the other dimensions make all conditions of `dim` hold.

    Args:
        dim: one of `dims`.
        dims: all, without circles.
        rest: what settings have where no dimension gives them a value.
    """
    chain = [one for one in parents_first(dims) if one.path in _ancestors(dim, dims)]
    lists = [_telling(one, dims) for one in chain]
    combinations = 1
    for values in lists:
        combinations *= len(values)
    if combinations > MAX_COMBINATIONS:
        return True
    return any(_holds(dim, chain, values, rest) for values in product(*lists))


def _holds(dim: Dimension, chain: Sequence[Dimension], values: Sequence[Any], rest: Mapping[str, Any]) -> bool:
    """Whether `dim` is searched where its ancestors, as far as they are searched themselves, take these values."""
    point: dict[str, Any] = {}
    for one, value in zip(chain, values, strict=True):
        if _all_hold(one, point, rest):
            point[one.path] = value
    return _all_hold(dim, point, rest)


def _all_hold(dim: Dimension, point: Mapping[str, Any], rest: Mapping[str, Any]) -> bool:
    return all(one.holds(point[one.key] if one.key in point else rest.get(one.key)) for one in dim.when)


def _ancestors(dim: Dimension, dims: Sequence[Dimension]) -> set[str]:
    by_path = {one.path: one for one in dims}
    found: set[str] = set()
    waiting = [condition.key for condition in dim.when]
    while waiting:
        key = waiting.pop()
        if key in by_path and key not in found:
            found.add(key)
            waiting += [condition.key for condition in by_path[key].when]
    return found


class _Other:
    """A value that no condition names."""


def _telling(dim: Dimension, dims: Sequence[Dimension]) -> list[Any]:
    """Values that conditions tell apart: those they name and it can have, and one more if there is any."""
    named = [value for one in dims for condition in one.when if condition.key == dim.path for value in condition.values]
    is_told = Condition(dim.path, tuple(named)).holds
    others = [] if dim.is_listed and all(map(is_told, dim.values)) else [_Other()]
    return [*(value for value in named if dim.can_be(value)), *others]

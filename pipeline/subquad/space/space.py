"""A search space that was checked against an experiment: it draws points, walks its grid, and says what a point sets.

A point is a flat mapping of dotted settings to plain values. A dimension whose `when` does not hold is not in it, and
has its default instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from subquad.errors import ConfigError, UserError
from subquad.experiment.settings import Setting, one_line
from subquad.space.conditions import parents_first
from subquad.space.constraint import Constraint
from subquad.space.dimension import Dimension, is_number

Point = dict[str, Any]

MAX_ATTEMPTS = 1000
"""Draws for one point before the values that keep its constraints are listed."""
MAX_COUNTED = 1_000_000
"""Combinations of dimensions that depend on each other; more are not counted or listed."""


@dataclass(frozen=True)
class Space:
    """What is searched. Made by `subquad.space.check`, which has refused everything that cannot work.

    Attributes:
        name: as the user gave it, `agf+optimizer`.
        dims: dimensions in the order of their files, files by name.
        constraints: what every point keeps.
        rest: settings that conditions and constraints look at where a point does not have them: the experiment's, or,
            of a dimension with a `when`, the default.
        left_out: dimensions that do not suit the experiment.
    """

    name: str
    dims: tuple[Dimension, ...]
    constraints: tuple[Constraint, ...]
    rest: Mapping[str, Any]
    left_out: tuple[Dimension, ...] = ()

    @property
    def dimensions(self) -> int:
        """How many settings are searched: those with more than one value."""
        return sum(dim.count != 1 for dim in self.dims)

    @property
    def is_finite(self) -> bool:
        return all(dim.count is not None for dim in self.dims)

    @cached_property
    def ordered(self) -> tuple[Dimension, ...]:
        """The dimensions in the order in which a sampler asks for their values: after those their `when` names."""
        return parents_first(self.dims)

    def is_active(self, dim: Dimension, point: Mapping[str, Any]) -> bool:
        """Whether a dimension is searched, given the values of those before it in `ordered`."""
        return all(condition.holds(self.value(condition.key, point)) for condition in dim.when)

    def value(self, key: str, point: Mapping[str, Any]) -> Any:
        """What a setting has at a point."""
        return point[key] if key in point else self.rest[key]

    def draw(self, seed: int, number: int) -> Point:
        """A random point: a pure function of the dimensions, `seed` and `number`, each from 0 to 2**64 - 1.

        Where a constraint is broken, the dimensions of constraints are drawn again, all others keep their values. Where
        hardly any draw keeps them, those that do are listed, each as likely as the others.

        Raises:
            ConfigError: the constraints leave no point; or hardly one, and there are too many to list.
        """
        from subquad.space import draw

        bound = {dim.path for dim in self._bound}

        def drawn(dim: Dimension, attempt: int = 0) -> Any:
            return draw.value(dim, draw.word(seed, number, dim.path, attempt if dim.path in bound else 0))

        for attempt in range(MAX_ATTEMPTS):
            point = self.compose(lambda dim, attempt=attempt: drawn(dim, attempt))
            if self.keeps(point):
                return point
        if not self._kept:
            names = "; ".join(map(str, self.constraints))
            raise ConfigError(
                one_line(f"space {self.name}: none of {MAX_ATTEMPTS:,} random points keeps its constraints ({names})")
            )
        kept = self._kept[draw.word(seed, number, "kept", 0) % len(self._kept)]
        return self.compose(lambda dim: kept[dim.path] if dim.path in bound else drawn(dim))

    @cached_property
    def _bound(self) -> tuple[Dimension, ...]:
        """The dimensions that decide whether a point keeps the constraints, in the order of `ordered`."""
        keys = {key for constraint in self.constraints for key in constraint.keys}
        for dim in reversed(self.ordered):
            if dim.path in keys:
                keys.update(condition.key for condition in dim.when)
        return tuple(dim for dim in self.ordered if dim.path in keys)

    @cached_property
    def _kept(self) -> list[Point]:
        """All values of these that keep the constraints; none where there are too many to look at."""
        if any(dim.count is None for dim in self._bound) or prod(dim.count or 0 for dim in self._bound) > MAX_COUNTED:
            return []
        return list(self._walk(self._bound, {}))

    def compose(self, choose: Callable[[Dimension], Any]) -> Point:
        """The point of the values that are chosen for the active dimensions, asked for in the order of `ordered`."""
        point: Point = {}
        for dim in self.ordered:
            if self.is_active(dim, point):
                point[dim.path] = choose(dim)
        return self._in_order(point)

    def _in_order(self, point: Point) -> Point:
        return {dim.path: point[dim.path] for dim in self.dims if dim.path in point}

    def keeps(self, point: Mapping[str, Any]) -> bool:
        """Whether a point keeps the constraints on what it sets."""
        return all(self._keeps(constraint, point) for constraint in self.constraints)

    def _keeps(self, constraint: Constraint, point: Mapping[str, Any]) -> bool:
        numbers = [self.value(key, point) for key in constraint.keys]
        applies = any(key in point for key in constraint.keys) and all(map(is_number, numbers))
        return not applies or constraint.holds(numbers)

    def grid(self) -> Iterator[Point]:
        """Every point, each once; the last dimension varies first.

        Raises:
            ConfigError: a dimension is continuous.
        """
        continuous = [dim for dim in self.dims if dim.count is None]
        if continuous:
            first = continuous[0]
            more = f" (and {len(continuous) - 1} more)" if len(continuous) > 1 else ""
            raise ConfigError(
                one_line(
                    f"{first.origin}: {first.path}: {first.kind} has no grid{more}; use choice, grid or int, "
                    "or another kind of search"
                )
            )
        return map(self._in_order, self._walk(self.ordered, {}))

    def _walk(self, dims: tuple[Dimension, ...], point: Point) -> Iterator[Point]:
        if not dims:
            if self.keeps(point):
                yield point
            return
        first, *others = dims
        if not self.is_active(first, point):
            yield from self._walk(tuple(others), point)
            return
        for option in first.options:
            yield from self._walk(tuple(others), {**point, first.path: option})

    def size(self) -> int | None:
        """The number of points of the grid; None where a dimension is continuous, or there are too many to count."""
        if not self.is_finite:
            return None
        linked = tuple(dim for dim in self.ordered if self._is_linked(dim))
        free = prod(dim.count or 0 for dim in self.dims if dim not in linked)
        if prod(dim.count or 0 for dim in linked) > MAX_COUNTED:
            return None
        return free * sum(1 for _ in self._walk(linked, {}))

    def _is_linked(self, dim: Dimension) -> bool:
        """Whether its values decide about others, or others about it."""
        named = {condition.key for other in self.dims for condition in other.when}
        bound = {key for constraint in self.constraints for key in constraint.keys}
        return bool(dim.when) or dim.path in named | bound

    def settings(self, point: Mapping[str, Any]) -> list[Setting]:
        """What to lay over the experiment for a point; dimensions that are not in it go back to their defaults."""
        return [Setting(dim.key_path, self.value(dim.path, point), dim.origin) for dim in self.dims]

    def refusal(self, point: Mapping[str, Any], check: Callable[[list[Setting]], object]) -> str | None:
        """Why the experiment cannot run at a point, in one line; None where it can.

        Args:
            point: of this space.
            check: builds the experiment with settings laid over it, as `subquad.space.builder` does; a `UserError` of
                it is the reason.
        """
        try:
            check(self.settings(point))
        except UserError as error:
            return str(error)
        return None

    def feasible(self, point: Mapping[str, Any], check: Callable[[list[Setting]], object]) -> bool:
        """Whether the experiment can run at a point: see `refusal`."""
        return self.refusal(point, check) is None

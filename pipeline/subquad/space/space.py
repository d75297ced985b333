"""A search space that was checked against an experiment: it draws points, walks its grid, and says
what a point sets.

A point is a flat mapping of dotted settings to plain values. A dimension whose `when`, or that of
whose field, does not hold is not in it, and has its default instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, product
from math import prod
from typing import Any

from optuna.samplers import RandomSampler

from subquad.errors import ConfigError
from subquad.plugin.effect import Condition
from subquad.space.dimension import Constraint, Dimension, is_number

Point = dict[str, Any]

MAX_ATTEMPTS = 1000
"""Draws for one point before the values that keep its constraints are listed."""
MAX_COUNTED = 1_000_000
"""Combinations of dimensions that depend on each other; more are not counted or listed."""
_MAX_COMBINATIONS = 10_000
"""Of values that conditions name; with more, a condition is taken as possible."""


def seed_of(*parts: int | str) -> int:
    """A seed of 32 bits that follows from parts such as a search's seed and a trial's number."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "little")


@dataclass(frozen=True)
class Space:
    """What is searched. Made by `subquad.space.check_space`, which has refused everything that
    cannot work.

    Attributes:
        name: as the user gave it, `agf+optimizer`.
        dims: dimensions in the order of their files, files by name.
        constraints: what every point keeps.
        rest: settings that conditions and constraints look at where a point does not have them: the
            experiment's, or, of a dimension with conditions, the default.
        left_out: dimensions that do not suit the experiment.
    """

    name: str
    dims: tuple[Dimension, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[Dimension, ...] = ()

    @property
    def dimensions(self) -> int:
        """How many settings are searched: those with more than one value."""
        return sum(dim.options is None or len(dim.options) != 1 for dim in self.dims)

    @property
    def is_finite(self) -> bool:
        return all(dim.options is not None for dim in self.dims)

    @cached_property
    def ordered(self) -> tuple[Dimension, ...]:
        """The dimensions in the order in which a sampler asks for their values: after those
        their conditions name.
        """
        return parents_first(self.dims)

    def is_active(self, dim: Dimension, point: Mapping[str, Any]) -> bool:
        """Whether a dimension is searched, given the values of those before it in `ordered`."""
        return dim.is_searched(lambda key: self.value(key, point))

    def value(self, key: str, point: Mapping[str, Any]) -> Any:
        """What a setting has at a point."""
        return point[key] if key in point else self.rest[key]

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Whether a point has a possible value for each dimension that is active in it, and
        nothing else.
        """
        active = {dim.path: dim for dim in self.dims if self.is_active(dim, point)}
        return point.keys() == active.keys() and all(
            dim.can_be(point[path]) for path, dim in active.items()
        )

    def draw(self, seed: int, number: int, given: Mapping[str, Any] | None = None) -> Point:
        """A random point, each value by Optuna's random sampler: a function of the dimensions and
        the arguments.

        A value depends on its dimension's name, so it stays when other dimensions join or leave.
        Where a constraint is broken, the dimensions of constraints are drawn again, all others keep
        their values. Where hardly any draw keeps them, those that do are listed, each as likely as
        the others.

        Args:
            seed: of the search.
            number: of the point, from 0.
            given: values that are not drawn, by dotted setting.

        Raises:
            ConfigError: the constraints leave no point; or hardly one, and there are too many to
                list.
        """
        fixed = given or {}
        bound = {dim.path for dim in self._bound}

        def drawn(dim: Dimension, attempt: int) -> Any:
            if dim.path in fixed:
                return fixed[dim.path]
            if dim.path not in bound:
                attempt = 0
            sampler = RandomSampler(seed=seed_of(seed, number, dim.path, attempt))
            nothing: Any = None  # the sampler looks at the distribution alone
            return sampler.sample_independent(nothing, nothing, dim.path, dim.distribution)

        for attempt in range(MAX_ATTEMPTS):
            point = self.compose(partial(drawn, attempt=attempt))
            if self.keeps(point):
                return point
        if given or not self._kept:
            names = "; ".join(map(str, self.constraints))
            raise ConfigError(
                f"space {self.name}: none of {MAX_ATTEMPTS:,} random points keeps "
                f"its constraints ({names})"
            )
        fixed = self._kept[seed_of(seed, number, "kept") % len(self._kept)]
        return self.compose(partial(drawn, attempt=0))

    @cached_property
    def _bound(self) -> tuple[Dimension, ...]:
        """The dimensions that decide whether a point keeps the constraints, in the order of
        `ordered`.
        """
        keys = self._constrained
        for dim in reversed(self.ordered):
            if dim.path in keys:
                keys.update(condition.key for condition in dim.conditions)
        return tuple(dim for dim in self.ordered if dim.path in keys)

    @property
    def _constrained(self) -> set[str]:
        """The settings that constraints name."""
        return set[str]().union(*(constraint.keys for constraint in self.constraints))

    @cached_property
    def _kept(self) -> list[Point]:
        """All values of these that keep the constraints; none where there are too many to look
        at.
        """
        is_listed = all(dim.options is not None for dim in self._bound)
        if is_listed and _combinations(self._bound) <= MAX_COUNTED:
            return list(self._walk(self._bound, {}))
        return []

    def compose(self, choose: Callable[[Dimension], Any]) -> Point:
        """The point of the values that are chosen for the active dimensions, asked for in the
        order of `ordered`.
        """
        point: Point = {}
        for dim in self.ordered:
            if self.is_active(dim, point):
                point[dim.path] = choose(dim)
        return self._in_order(point)

    def _in_order(self, point: Point) -> Point:
        return {dim.path: point[dim.path] for dim in self.dims if dim.path in point}

    def keeps(self, point: Mapping[str, Any]) -> bool:
        """Whether a point keeps the constraints on what it sets."""
        for constraint in self.constraints:
            if not point.keys().isdisjoint(constraint.keys):
                numbers = [self.value(key, point) for key in constraint.keys]
                if all(map(is_number, numbers)) and not constraint.holds(numbers):
                    return False
        return True

    def grid(self) -> Iterator[Point]:
        """Every point, each once; the last dimension varies first.

        Raises:
            ConfigError: a dimension is continuous.
        """
        continuous = [dim for dim in self.dims if dim.options is None]
        if continuous:
            first, *others = continuous
            more = f" (and {len(others)} more)" if others else ""
            raise ConfigError(
                f"{first.origin}: {first.path}: {first.kind} has no grid{more}; use choice or int, "
                "or another kind of search"
            )
        return map(self._in_order, self._walk(self.ordered, {}))

    def _walk(self, dims: Sequence[Dimension], point: Point) -> Iterator[Point]:
        if not dims:
            if self.keeps(point):
                yield point
            return
        first, *others = dims
        if not self.is_active(first, point):
            yield from self._walk(others, point)
            return
        for option in first.options or ():
            yield from self._walk(others, {**point, first.path: option})

    def size(self) -> int | None:
        """The number of points of the grid; None where a dimension is continuous, or there are
        too many to count.
        """
        if not self.is_finite:
            return None
        named = self._constrained
        named.update(condition.key for dim in self.dims for condition in dim.conditions)
        linked = [dim for dim in self.ordered if dim.conditions or dim.path in named]
        free = [dim for dim in self.ordered if dim not in linked]
        if _combinations(linked) > MAX_COUNTED:
            return None
        return sum(1 for _ in self._walk(linked, {})) * _combinations(free)

    def settings(self, point: Mapping[str, Any]) -> Point:
        """What to lay over the experiment for a point, by dotted key; dimensions that are not in it
        go back to their defaults.
        """
        return {dim.path: self.value(dim.path, point) for dim in self.dims}

    def as_data(self) -> dict[str, Any]:
        """As data of a space file, so that a search goes on without the files it came from."""
        data: dict[str, Any] = {"dims": {dim.path: dim.as_data() for dim in self.dims}}
        if self.constraints:
            data["constraints"] = [constraint.as_data() for constraint in self.constraints]
        return data


def _combinations(dims: Sequence[Dimension]) -> int:
    return prod(len(dim.options or ()) for dim in dims)


def parents_first(dims: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions in their order, but each after those that its conditions name.

    Raises:
        ConfigError: conditions in a circle.
    """
    by_path = {dim.path: dim for dim in dims}
    done: dict[str, Dimension] = {}
    for dim in dims:
        _after_parents(dim, by_path, done)
    return tuple(done.values())


def _after_parents(
    dim: Dimension,
    by_path: Mapping[str, Dimension],
    done: dict[str, Dimension],
    above: tuple[str, ...] = (),
) -> dict[str, Dimension]:
    """Put a dimension into `done` after all that its conditions, and theirs, name."""
    if dim.path in above:
        circle = " -> ".join((*above[above.index(dim.path) :], dim.path))
        raise dim.wrong(f"when goes in a circle ({circle})")
    for condition in dim.conditions:
        parent = by_path.get(condition.key)
        if parent is not None and parent.path not in done:
            _after_parents(parent, by_path, done, (*above, dim.path))
    done.setdefault(dim.path, dim)
    return done


def ever_active(dim: Dimension, dims: Sequence[Dimension], rest: Mapping[str, Any]) -> bool:
    """Whether some values of the other dimensions make all conditions of `dim` hold.

    Args:
        dim: one of `dims`.
        dims: all, without circles.
        rest: what settings have where no dimension gives them a value.
    """
    *above, _ = _after_parents(dim, {parent.path: parent for parent in dims}, {}).values()
    lists = [_telling(parent, dims) for parent in above]
    if prod(map(len, lists)) > _MAX_COMBINATIONS:
        return True
    for values in product(*lists):
        point = dict(rest)
        for parent, value in zip(above, values, strict=True):
            if parent.is_searched(point.get):
                point[parent.path] = value
        if dim.is_searched(point.get):
            return True
    return False


def _telling(dim: Dimension, dims: Sequence[Dimension]) -> list[Any]:
    """Values that conditions tell apart: those they name and it can have, and one more if there
    is any.
    """
    named: list[Any] = []
    for condition in chain.from_iterable(other.conditions for other in dims):
        if condition.key == dim.path:
            named += condition.values
    telling = [value for value in named if dim.can_be(value)]
    is_named = Condition(dim.path, tuple(named)).holds
    if dim.kind != "choice" or not all(map(is_named, dim.options or ())):
        telling.append(object())
    return telling

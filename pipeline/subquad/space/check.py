"""Hold a space against an experiment, before anything starts: settings, values, conditions, constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.checked import Checked
from subquad.experiment.refusals import shown
from subquad.experiment.settings import KeyPath, Origin, dotted, one_line, problem
from subquad.space.conditions import ever_active, parents_first
from subquad.space.constraint import Constraint
from subquad.space.declared import Declared
from subquad.space.dimension import Dimension, is_number
from subquad.space.fields import Fields
from subquad.space.forbidden import never_searched
from subquad.space.space import Space
from subquad.space.suits import suiting

PROBED = 10
"""Points that are drawn before a space is taken for one that can be searched."""


class NothingToSearch(ConfigError):
    """A space that leaves an experiment no dimension."""


def check(declared: Declared, experiment: Checked, *, drop: bool = False) -> Space:
    """A space that can be searched, of what files say and one experiment.

    Args:
        declared: what the files say.
        experiment: a checked one; in a study one of its cells.
        drop: leave out what does not suit the experiment, for studies of several mixers: dimensions for another mixer,
            and those whose `when` cannot hold here. False: refuse them.

    Raises:
        ConfigError: the first of what is wrong, with file, line and setting.
    """
    fields = Fields(experiment)
    dims, constraints = suiting(declared, experiment, drop=drop)
    for dim in dims:
        _check_setting(dim, fields)
        _check_values(dim, fields)
        _check_conditions(dim, fields)
    _refuse_overlap(dims)
    parents_first(dims)  # refuses circles
    rest = _rest(dims, constraints, fields)
    kept = _possible(dims, rest, fields, drop=drop)
    searched = {dim.path for dim in kept}
    constraints = tuple(one for one in constraints if not drop or searched.intersection(one.keys))
    for constraint in constraints:
        _check_constraint(constraint, kept, fields)
    if not kept:
        raise NothingToSearch(one_line(f"space {declared.name}: nothing of it can be searched in this experiment"))
    left_out = tuple(dim for dim in declared.dims if dim not in kept)
    space = Space(declared.name, kept, constraints, rest, left_out)
    for number in range(PROBED):
        space.draw(0, number)  # refuses constraints that leave nothing, or hardly anything
    return space


def _check_setting(dim: Dimension, fields: Fields) -> None:
    if reason := never_searched(dim.key_path, fields.experiment):
        raise _wrong(dim, dim.key_path, f"cannot be searched: {reason}")
    if fault := fields.fault(dim.key_path):
        raise _wrong(dim, fault.path, fault.message)


def _check_values(dim: Dimension, fields: Fields) -> None:
    if dim.count == 0 or (not dim.is_listed and dim.low >= dim.high):
        raise _wrong(dim, dim.key_path, "has no values to try")  # files are refused before: a plugin's own range
    if dim.log and dim.low <= 0:
        raise _wrong(dim, dim.key_path, f"starts at {dim.low:g}, which has no logarithm")
    if dim.kind in ("uniform", "loguniform"):
        _check_fraction(dim, fields)
    for value in _probes(dim):
        if fault := fields.fault(dim.key_path, value):
            raise _wrong(dim, fault.path, fault.message)


def _check_fraction(dim: Dimension, fields: Fields) -> None:
    """A range of fractions for a setting of whole numbers is refused for what it is, not for its ends."""
    inside = dim.low + (dim.high - dim.low) * 0.3819660113
    if fields.fault(dim.key_path, inside) and not any(
        fields.fault(dim.key_path, int(end)) for end in (dim.low, dim.high)
    ):
        words = fields.words(dim.key_path) or "no fractions"
        raise _wrong(dim, dim.key_path, f"{dim.kind} draws fractions, must be {words}; use int or choice")


def _probes(dim: Dimension) -> Sequence[Any]:
    """Values that tell whether all are allowed; limits and steps of a schema are regular."""
    if dim.is_listed:
        return dim.values
    if dim.kind != "int":
        return dim.low, dim.high
    return sorted({int(dim.low), int(dim.low) + dim.step, int(dim.high)})


def _check_conditions(dim: Dimension, fields: Fields) -> None:
    for condition in dim.when:
        path = _path(condition.key)
        if path == dim.key_path:
            raise _wrong(dim, path, "when names the setting itself")
        for fault in (fields.fault(path), *(fields.fault(path, value) for value in condition.values)):
            if fault:
                raise _wrong(dim, (*dim.key_path, "when", *fault.path), fault.message)


def _refuse_overlap(dims: Sequence[Dimension]) -> None:
    by_path = {dim.path: dim for dim in dims}
    for dim in dims:
        for length in range(1, len(dim.key_path)):
            if outer := by_path.get(".".join(dim.path.split(".")[:length])):
                raise _wrong(dim, dim.key_path, f"is part of {outer.path}, which is searched too; leave one out")


def _rest(dims: Sequence[Dimension], constraints: Sequence[Constraint], fields: Fields) -> dict[str, Any]:
    """What settings have where a point does not say."""
    named = [condition.key for dim in dims for condition in dim.when]
    named += [key for constraint in constraints for key in constraint.keys]
    rest = {key: fields.value(_path(key)) for key in named}
    return rest | {dim.path: fields.default(dim.key_path) for dim in dims if dim.when}


def _possible(dims: Sequence[Dimension], rest: dict[str, Any], fields: Fields, *, drop: bool) -> tuple[Dimension, ...]:
    """The dimensions that are searched at some point. One that is left out may make another one impossible."""
    kept = tuple(dims)
    while idle := next((dim for dim in kept if not ever_active(dim, kept, rest)), None):
        if not drop:
            raise _wrong(idle, idle.key_path, _never(idle, kept, fields))
        kept = tuple(dim for dim in kept if dim is not idle)
        rest[idle.path] = fields.value(idle.key_path)
    return kept


def _never(dim: Dimension, dims: Sequence[Dimension], fields: Fields) -> str:
    """Why a dimension is never searched."""
    by_path = {one.path: one for one in dims}
    for condition in dim.when:
        needed = " or ".join(map(shown, condition.values))
        other = by_path.get(condition.key)
        if other is None and not condition.holds(value := fields.value(_path(condition.key))):
            return (
                f"is never searched: needs {condition.key} {needed}, and the experiment has {shown(value)}; "
                f"set {condition.key} there, or leave this one out"
            )
        if other is not None and not any(map(other.can_be, condition.values)):
            return f"is never searched: needs {condition.key} {needed}, which {other.origin} does not try"
    return "is never searched: its conditions, and those of what they name, cannot hold together"


def _check_constraint(constraint: Constraint, dims: Sequence[Dimension], fields: Fields) -> None:
    by_path = {dim.path: dim for dim in dims}
    if not any(key in by_path for key in constraint.keys):
        raise _bad(constraint, f"none of {', '.join(constraint.keys)} is searched; leave it out")
    for key in constraint.keys:
        if fault := fields.fault(_path(key)):
            raise _bad(constraint, f"{dotted(fault.path)}: {fault.message}")
        for value in _numbers(key, by_path.get(key), fields):
            if not is_number(value):
                raise _bad(constraint, f"{key} is {shown(value)}, must be a number")


def _numbers(key: str, dim: Dimension | None, fields: Fields) -> Iterator[Any]:
    """The values that a constraint meets."""
    if dim is None:
        yield fields.value(_path(key))
    elif dim.is_listed:
        yield from (value for value in dim.values if value is not None)


def _path(key: str) -> KeyPath:
    return tuple(key.split("."))


def _wrong(dim: Dimension, path: KeyPath, message: str) -> ConfigError:
    return _at(dim.origin, path, message)


def _bad(constraint: Constraint, message: str) -> ConfigError:
    return _at(constraint.origin, ("constraints", constraint.relation), message)


def _at(origin: Origin, path: KeyPath, message: str) -> ConfigError:
    return problem(path, message, {(): origin})

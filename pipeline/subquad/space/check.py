"""Hold a space against an experiment, before anything starts; then make experiments of its
points.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution

from subquad.effect import ALWAYS, Condition, Effect
from subquad.errors import ConfigError
from subquad.experiment.canonical import to_yaml
from subquad.experiment.refusals import shown
from subquad.experiment.run import Run, laid
from subquad.experiment.settings import KeyPath, Setting, dotted, key_path, problem
from subquad.plugin import Site
from subquad.registry.loaded import check_site
from subquad.space.dimension import Constraint, Dimension, is_number
from subquad.space.fields import Fields, without_idle
from subquad.space.files import Declared, parse_space
from subquad.space.space import Space, parents_first

PROBED = 10
"""Points that are drawn before a space is taken for one that can be searched."""


class NothingToSearch(ConfigError):
    """A space that leaves an experiment no dimension."""


def check_space(declared: Declared, experiment: Run, *, drop: bool = False) -> Space:
    """A space that can be searched, of what files say and one experiment.

    Args:
        declared: what the files say.
        experiment: a checked one; in a study one of its cells.
        drop: leave out what does not suit the experiment, for studies of several mixers: dimensions
            for another mixer, and those whose `when` cannot hold here. False: refuse them.

    Raises:
        ConfigError: the first of what is wrong, with file, line and setting.
    """
    fields = Fields(experiment)
    by_path, constraints = _suiting(declared, experiment, drop=drop)
    for dim in by_path.values():
        _check_values(dim, fields)
        _check_conditions(dim, fields)
    dims = tuple(replace(dim, effect=_effect(dim, by_path, fields)) for dim in by_path.values())
    _refuse_overlap(by_path)
    parents_first(dims)  # refuses circles

    def refuse(dim: Dimension, others: Sequence[Dimension]) -> None:
        if not drop:
            raise _wrong(dim, dim.key_path, _never(dim, others, fields))

    kept, rest = without_idle(dims, constraints, fields, refuse)
    searched = {dim.path for dim in kept}
    constraints = tuple(
        constraint
        for constraint in constraints
        if not drop or searched.intersection(constraint.keys)
    )
    for constraint in constraints:
        _check_constraint(constraint, kept, fields)
    if not kept:
        raise NothingToSearch(
            f"space {declared.name}: nothing of it can be searched in this experiment"
        )
    left_out = tuple(dim for dim in declared.dims if dim not in kept)
    space = Space(declared.name, kept, constraints, rest, left_out)
    for number in range(PROBED):
        space.draw(0, number)  # refuses constraints that leave nothing, or hardly anything
    return space


def _suiting(
    declared: Declared, experiment: Run, *, drop: bool
) -> tuple[dict[str, Dimension], tuple[Constraint, ...]]:
    """The dimensions by their settings, and the constraints, for the experiment's mixer; those for
    another one are left out or refused.
    """
    found = experiment.mixer.found
    names = {None, found.name, found.full_name, experiment.experiment.mixer.name}
    strange = next(
        (item for item in (*declared.dims, *declared.constraints) if item.mixer not in names), None
    )
    if strange is not None and not drop:
        raise ConfigError(
            f"{strange.origin}: is for mixer {strange.mixer!r}, and the experiment "
            f"has {found.name!r}; "
            f"use another space, or mixer={strange.mixer}"
        )
    dims = {dim.path: dim for dim in declared.dims if dim.mixer in names}
    return dims, tuple(item for item in declared.constraints if item.mixer in names)


def _check_values(dim: Dimension, fields: Fields) -> None:
    if reason := fields.never_searched(dim.key_path):
        raise _wrong(dim, dim.key_path, f"cannot be searched: {reason}")
    if fault := fields.fault(dim.key_path):
        raise _wrong(dim, fault.path, fault.message)
    if isinstance(dim.distribution, FloatDistribution):
        _check_fraction(dim, dim.distribution, fields)
    for value in _probes(dim):
        if fault := fields.fault(dim.key_path, value):
            raise _wrong(dim, fault.path, fault.message)


def _check_fraction(dim: Dimension, values: FloatDistribution, fields: Fields) -> None:
    """A range of fractions for a setting of whole numbers is refused for what it is, not for its
    ends.
    """
    inside = values.low + (values.high - values.low) * 0.3819660113
    if fields.fault(dim.key_path, inside) and not any(
        fields.fault(dim.key_path, int(end)) for end in (values.low, values.high)
    ):
        words = fields.words(dim.key_path) or "no fractions"
        raise _wrong(
            dim, dim.key_path, f"{dim.kind} draws fractions, must be {words}; use int or choice"
        )


def _probes(dim: Dimension) -> Sequence[Any]:
    """Values that tell whether all are allowed; limits and steps of a schema are regular."""
    values = dim.distribution
    if isinstance(values, CategoricalDistribution):
        return values.choices
    if isinstance(values, FloatDistribution):
        return values.low, values.high
    return sorted({values.low, values.low + values.step, values.high})


def _check_conditions(dim: Dimension, fields: Fields) -> None:
    for condition in dim.when:
        path = key_path(condition.key)
        if path == dim.key_path:
            raise _wrong(dim, path, "when names the setting itself")
        for fault in (
            fields.fault(path),
            *(fields.fault(path, value) for value in condition.values),
        ):
            if fault:
                raise _wrong(dim, (*dim.key_path, "when", *fault.path), fault.message)


def _effect(dim: Dimension, by_path: Mapping[str, Dimension], fields: Fields) -> Effect:
    """When a dimension's setting has an effect, by its field; without what holds at every point
    anyway.
    """

    def always_holds(condition: Condition) -> bool:
        other = by_path.get(condition.key)
        if other is None:
            return condition.holds(fields.value(key_path(condition.key)))
        if condition.but:
            tried = not any(map(other.can_be, condition.values))
        else:
            options = other.options
            tried = (
                options is not None
                and len(options) <= len(condition.values)
                and all(map(condition.holds, options))
            )
        return tried and condition.holds(fields.default(other.key_path))

    left = [
        tuple(itertools.filterfalse(always_holds, conditions))
        for conditions in fields.effect(dim.key_path)
    ]
    if () in left:
        return ALWAYS
    return tuple(left)


def _refuse_overlap(by_path: Mapping[str, Dimension]) -> None:
    for dim in by_path.values():
        for length in range(1, len(dim.key_path)):
            if outer := by_path.get(".".join(map(str, dim.key_path[:length]))):
                raise _wrong(
                    dim,
                    dim.key_path,
                    f"is part of {outer.path}, which is searched too; leave one out",
                )


def _never(dim: Dimension, dims: Sequence[Dimension], fields: Fields) -> str:
    """Why a dimension is never searched."""
    by_path = {other.path: other for other in dims}
    for condition in (*dim.when, *(dim.effect[0] if len(dim.effect) == 1 else ())):
        other = by_path.get(condition.key)
        if other is None and not condition.holds(value := fields.value(key_path(condition.key))):
            return (
                f"is never searched: needs {condition}, and the experiment has {shown(value)}; "
                f"set {condition.key} there, or leave this one out"
            )
        if other is not None and not condition.but and not any(map(other.can_be, condition.values)):
            return f"is never searched: needs {condition}, which {other.origin} does not try"
    return "is never searched: its conditions, and those of what they name, cannot hold together"


def _check_constraint(constraint: Constraint, dims: Sequence[Dimension], fields: Fields) -> None:
    by_path = {dim.path: dim for dim in dims}
    if not any(key in by_path for key in constraint.keys):
        raise _bad(constraint, f"none of {', '.join(constraint.keys)} is searched; leave it out")
    for key in constraint.keys:
        if fault := fields.fault(key_path(key)):
            raise _bad(constraint, f"{dotted(fault.path)}: {fault.message}")
        met = [fields.value(key_path(key))]
        if dim := by_path.get(key):
            met = [value for value in getattr(dim.distribution, "choices", ()) if value is not None]
        for value in met:
            if not is_number(value):
                raise _bad(constraint, f"{key} is {shown(value)}, must be a number")


def _wrong(dim: Dimension, path: KeyPath, message: str) -> ConfigError:
    return problem(path, message, {(): dim.origin})


def _bad(constraint: Constraint, message: str) -> ConfigError:
    return problem(("constraints", constraint.relation), message, {(): constraint.origin})


def run_at(experiment: Run, settings: Sequence[Setting], max_len: int = 0) -> Run:
    """The experiment of a point. Nothing heavy is imported, and no plugin is looked for again.

    Args:
        experiment: what the point is laid over.
        settings: the point's.
        max_len: longest sequence of its data, prefix tokens included; 0: not known, so that limits
            of length are not looked at.

    Raises:
        UserError: it cannot run.
    """
    run = laid(experiment, settings)
    dim = getattr(run.backbone_config, "dim", None)
    heads = getattr(run.backbone_config, "num_heads", None)
    if isinstance(dim, int):  # else the backbone does not say its width
        heads = heads if isinstance(heads, int) else 1
        site = Site(dim=dim, num_heads=heads, max_len=max_len)
        check_site(run.mixer, run.mixer_config, site)
    return run


def read_space(data: dict[str, Any], name: str, experiment: Run) -> Space:
    """The space that `Space.as_data` wrote down, for the same experiment.

    Raises:
        ConfigError: the data were edited into something that is none.
    """
    if not data.get("dims"):
        return Space(name)
    return check_space(parse_space(to_yaml(data), name, source="search.yaml"), experiment)

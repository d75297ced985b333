"""Hold a space against an experiment, before anything starts; then make experiments of its
points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution

from subquad.errors import ConfigError
from subquad.experiment.canonical import to_yaml
from subquad.experiment.refusals import shown
from subquad.experiment.run import Run, laid
from subquad.experiment.settings import dotted, flat_key, key_path, problem
from subquad.plugin import Site
from subquad.plugin.effect import ALWAYS, Condition, Effect
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
    for dim in by_path.values():
        for length in range(1, len(dim.key_path)):
            above = flat_key(dim.key_path[:length])
            if above in by_path:
                raise dim.wrong(f"is part of {above}, which is searched too; leave one out")
    dims = [replace(dim, effect=_effect(dim, by_path, fields)) for dim in by_path.values()]
    parents_first(dims)  # refuses circles
    kept, rest, idle = without_idle(dims, constraints, fields)
    if idle and not drop:
        raise idle[0].wrong(_never(idle[0], dims, fields))
    searched = {dim.path: dim for dim in kept}
    kept_constraints: list[Constraint] = []
    for constraint in constraints:
        if not (drop and searched.keys().isdisjoint(constraint.keys)):
            _check_constraint(constraint, searched, fields)
            kept_constraints.append(constraint)
    if not kept:
        raise NothingToSearch(
            f"space {declared.name}: nothing of it can be searched in this experiment"
        )
    left_out = [dim for dim in declared.dims if dim not in kept]
    space = Space(declared.name, kept, tuple(kept_constraints), rest, tuple(left_out))
    for number in range(PROBED):
        space.draw(0, number)  # refuses constraints that leave nothing, or hardly anything
    return space


def _suiting(
    declared: Declared, experiment: Run, *, drop: bool
) -> tuple[dict[str, Dimension], list[Constraint]]:
    """The dimensions by their settings, and the constraints, for the experiment's mixer; those for
    another one are left out or refused.
    """
    found = experiment.mixer.found
    names = {None, found.name, found.full_name, experiment.experiment.mixer.name}
    for item in (*declared.dims, *declared.constraints):
        if item.mixer not in names and not drop:
            why = f"is for mixer {item.mixer!r}, and the experiment has {found.name!r}"
            raise ConfigError(f"{item.origin}: {why}; use another space, or mixer={item.mixer}")
    return {dim.path: dim for dim in declared.dims if dim.mixer in names}, [
        item for item in declared.constraints if item.mixer in names
    ]


def _check_values(dim: Dimension, fields: Fields) -> None:
    path = dim.key_path
    if reason := fields.never_searched(path):
        raise dim.wrong(f"cannot be searched: {reason}")
    if fault := fields.unknown(path):
        raise dim.wrong(fault.message, fault.path)
    values = dim.distribution
    if isinstance(values, FloatDistribution):
        # for a setting of whole numbers it is refused for what it is, not for its ends
        takes_fractions = (
            fields.fault(path, values.low + (values.high - values.low) * 0.3819660113) is None
        )
        first = fields.fault(path, int(values.low))
        if not (takes_fractions or first or fields.fault(path, int(values.high))):
            words = fields.words(path) or "no fractions"
            raise dim.wrong(f"{dim.kind} draws fractions, must be {words}; use int or choice")
        probes: Sequence[Any] = values.low, values.high
    elif isinstance(values, CategoricalDistribution):
        probes = values.choices
    else:  # they tell whether all are allowed; limits and steps of a schema are regular
        probes = sorted({values.low, values.low + values.step, values.high})
    for value in probes:
        if fault := fields.fault(path, value):
            raise dim.wrong(fault.message, fault.path)


def _check_conditions(dim: Dimension, fields: Fields) -> None:
    for condition in dim.when:
        path = key_path(condition.key)
        if path == dim.key_path:
            raise dim.wrong("when names the setting itself")
        for value in (fields.value(path), *condition.values):
            fault = fields.fault(path, value)
            if fault:
                raise dim.wrong(fault.message, (*dim.key_path, "when", *fault.path))


def _effect(dim: Dimension, by_path: Mapping[str, Dimension], fields: Fields) -> Effect:
    """When a dimension's setting has an effect, by its field; without what holds at every point
    anyway.
    """

    def may_fail(condition: Condition) -> bool:
        return not _always_holds(condition, by_path.get(condition.key), fields)

    left = tuple(tuple(filter(may_fail, each)) for each in fields.effect(dim.key_path))
    return left if all(left) else ALWAYS


def _always_holds(condition: Condition, other: Dimension | None, fields: Fields) -> bool:
    """Whether a condition holds at every point; `other` is the dimension that it is about."""
    path = key_path(condition.key)
    if other is None:
        return condition.holds(fields.value(path))
    if not condition.holds(fields.default(path)):
        return False
    if condition.but:
        return not any(map(other.can_be, condition.values))
    options = other.options
    if options is None:
        return False
    return len(options) <= len(condition.values) and all(map(condition.holds, options))


def _never(dim: Dimension, dims: Sequence[Dimension], fields: Fields) -> str:
    """Why a dimension is never searched."""
    by_path = {other.path: other for other in dims}
    needed = list(dim.when)
    if len(dim.effect) == 1:
        needed += dim.effect[0]
    for condition in needed:
        other = by_path.get(condition.key)
        if other is None:
            value = fields.value(key_path(condition.key))
            if not condition.holds(value):
                why = f"needs {condition}, and the experiment has {shown(value)}"
                return f"is never searched: {why}; set {condition.key} there, or leave this one out"
        elif not condition.but and not any(map(other.can_be, condition.values)):
            why = f"needs {condition}, which {other.origin} does not try"
            return f"is never searched: {why}"
    return "is never searched: its conditions, and those of what they name, cannot hold together"


def _check_constraint(
    constraint: Constraint, searched: Mapping[str, Dimension], fields: Fields
) -> None:
    if searched.keys().isdisjoint(constraint.keys):
        keys = ", ".join(constraint.keys)
        raise _bad(constraint, f"none of {keys} is searched; leave it out")
    for key in constraint.keys:
        path = key_path(key)
        if fault := fields.unknown(path):
            raise _bad(constraint, f"{dotted(fault.path)}: {fault.message}")
        met: Sequence[Any] = [fields.value(path)]
        if key in searched:
            met = getattr(searched[key].distribution, "choices", ())
        for value in met:
            if value is None and key in searched:
                continue  # it is off there, and the constraint does not apply
            if not is_number(value):
                raise _bad(constraint, f"{key} is {shown(value)}, must be a number")


def _bad(constraint: Constraint, message: str) -> ConfigError:
    return problem(("constraints", constraint.relation), message, constraint.origin)


def run_at(experiment: Run, values: Mapping[str, Any], max_len: int = 0) -> Run:
    """The experiment of a point. Nothing heavy is imported, and no plugin is looked for again.

    Args:
        experiment: what the point is laid over.
        values: the point's settings, by dotted key.
        max_len: longest sequence of its data, prefix tokens included; 0: not known, so that limits
            of length are not looked at.

    Raises:
        UserError: it cannot run.
    """
    run = laid(experiment, values)
    dim = getattr(run.backbone_config, "dim", None)
    heads = getattr(run.backbone_config, "num_heads", None)
    if isinstance(dim, int):  # else the backbone does not say its width
        heads = heads if isinstance(heads, int) else 1
        check_site(run.mixer, run.mixer_config, Site(dim=dim, num_heads=heads, max_len=max_len))
    return run


def read_space(data: dict[str, Any], name: str, experiment: Run) -> Space:
    """The space that `Space.as_data` wrote down, for the same experiment.

    Raises:
        ConfigError: the data were edited into something that is none.
    """
    if not data.get("dims"):
        return Space(name)
    return check_space(parse_space(to_yaml(data), name, source="search.yaml"), experiment)

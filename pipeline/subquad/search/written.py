"""A checked space as data that a space file may hold: a search goes on without the files it came from."""

from __future__ import annotations

from typing import Any

from subquad.experiment import Checked
from subquad.experiment.canonical import to_yaml
from subquad.space import Constraint, Dimension, Space, check, parse_space


def plain_space(space: Space) -> dict[str, Any]:
    """The space as data of a space file."""
    data: dict[str, Any] = {"dims": {dim.path: _dimension(dim) for dim in space.dims}}
    return data | ({"constraints": [_constraint(one) for one in space.constraints]} if space.constraints else {})


def _dimension(dim: Dimension) -> dict[str, Any]:
    when = {"when": {one.key: list(one.values) for one in dim.when}} if dim.when else {}
    if dim.is_listed:
        return {dim.kind: list(dim.values), **when}
    if dim.kind != "int":
        return {dim.kind: [float(dim.low), float(dim.high)], **when}
    data: dict[str, Any] = {"int": [int(dim.low), int(dim.high)]}
    if dim.step != 1:
        data["step"] = dim.step
    return data | ({"log": True} if dim.log else {}) | when


def _constraint(one: Constraint) -> dict[str, Any]:
    if one.relation == "sum_not_in":
        return {one.relation: {"keys": list(one.keys), "values": list(one.values)}}
    return {one.relation: list(one.keys)}


def read_space(data: dict[str, Any], name: str, experiment: Checked) -> Space:
    """The space that `plain_space` wrote down, for the same experiment.

    Raises:
        ConfigError: the data were edited into something that is none.
    """
    if not data.get("dims"):
        return empty_space(name)
    return check(parse_space(to_yaml(data), name, source="search.yaml"), experiment)


def empty_space(name: str) -> Space:
    """The space of a subject for which a study's space says nothing: its only point is the experiment itself."""
    return Space(name, (), (), {})

"""Spaces as they are said, before they are held against an experiment: files, shipped ones by name,
and `auto`.

A file is strict YAML with `dims`, and `constraints` and `mixer` where there are some. Several
spaces become one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic_core import to_jsonable_python

from subquad.effect import Condition, same
from subquad.errors import ConfigError
from subquad.experiment.refusals import Given, shown
from subquad.experiment.run import Run
from subquad.experiment.settings import Origin, key_path, problem, shown_target
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.registry import ParameterRow, describe_config, recipe
from subquad.space.dimension import RELATIONS, Constraint, Dimension, Distribution, is_number
from subquad.space.fields import Fields, without_idle

AUTO = "auto"
_AUTO_ORIGIN = f"space {AUTO} ("
MAX_DIMS, MAX_VALUES = 200, 1000
_KEYS = ("mixer", "dims", "constraints")
_KINDS = ("choice", "uniform", "loguniform", "int")
_OPTIONS = ("when", "step", "log")


@dataclass(frozen=True)
class Declared:
    """A space as its files say it, before any experiment is known.

    Attributes:
        name: of its file, or `auto`; of several `a+b`.
        dims: its dimensions. Two may set one thing where they are for two mixers.
        constraints: relations between settings.
        source: the file it was read from; "" where its name says all.
    """

    name: str
    dims: tuple[Dimension, ...]
    constraints: tuple[Constraint, ...] = ()
    source: str = ""


def find_space(names: str, experiment: Run, *, cwd: Path | None = None) -> Declared:
    """What the spaces say that a user names, before they are checked.

    Args:
        names: names of shipped spaces, paths of YAML files, or `auto`, joined by `+`.
        experiment: what `auto` derives its space from.
        cwd: what paths are relative to; the working directory where None.

    Raises:
        ConfigError: a name is missing or twice, a file is missing or wrong, or two spaces conflict.
        PluginError: no such space is installed, or several are.
    """
    parts = names.split("+")
    if not all(part.strip() for part in parts):
        raise ConfigError(f"space {names!r}: a name is missing; write them as in auto+optimizer")
    cwd = cwd or Path.cwd()
    if len(parts) > 1 and _is_path(names) and (cwd / names).exists():
        raise ConfigError(
            f"space {shown_target(names)}: + joins spaces; give the file a name without it"
        )
    return merge_spaces([_one(part.strip(), experiment, cwd) for part in parts])


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


def _one(name: str, experiment: Run, cwd: Path) -> Declared:
    if name == AUTO:
        return auto_space(experiment)
    if _is_path(name):
        path = cwd / name
        shown = shown_target(name)
        stem = re.sub(r"\.ya?ml$", "", path.name)
        declared = parse_space(
            read_text(path, shown), stem, source=shown, folder=path.parent.absolute()
        )
        return replace(declared, source=str(path.resolve()))
    return parse_space(recipe(name, "space").text(), name)


def merge_spaces(spaces: Sequence[Declared]) -> Declared:
    """Several spaces as one. Their order shows in the name alone.

    Raises:
        ConfigError: two of them say different things about one setting, or one is given twice.
    """
    ordered = sorted(spaces, key=lambda space: (space.name, space.source))
    for first, second in combinations(ordered, 2):
        if (first.name, first.source) == (second.name, second.source):
            raise ConfigError(f"space {first.name}: given twice; leave one out")
        _refuse_conflict(first, second)
    return Declared(
        "+".join(space.name for space in spaces),
        tuple(dict.fromkeys(dim for space in ordered for dim in space.dims)),
        tuple(dict.fromkeys(constraint for space in ordered for constraint in space.constraints)),
    )


def _refuse_conflict(first: Declared, second: Declared) -> None:
    for dim in first.dims:
        for other in second.dims:
            meet = dim.path == other.path and (
                dim.mixer == other.mixer or None in (dim.mixer, other.mixer)
            )
            if meet and replace(dim, mixer=None) != replace(other, mixer=None):
                message = (
                    f"says something else than {dim.origin} about it; leave it out of "
                    "one of the spaces"
                )
                raise problem(other.key_path, message, {(): other.origin})


def auto_space(experiment: Run) -> Declared:
    """The space that the fields of an experiment's mixer and backbone say; without dimensions where
    none says anything.

    A field whose `when` cannot hold in this experiment is left out.

    Raises:
        ConfigError: a field's range holds nothing, or has no logarithm.
    """
    fields = Fields(experiment)
    dims = [dim for kind in ("mixer", "backbone") for dim in _of_fields(kind, experiment, fields)]
    kept, _ = without_idle(dims, (), fields)
    return Declared(AUTO, kept)


def is_auto(dim: Dimension) -> bool:
    """Whether a dimension comes from a plugin's field, and not from a file."""
    return dim.origin.source.startswith(_AUTO_ORIGIN)


def _of_fields(kind: str, experiment: Run, fields: Fields) -> Iterator[Dimension]:
    """What the fields of a plugin say, read as a file would be."""
    name = getattr(experiment, kind).found.name
    marks = {(): Origin(f"{_AUTO_ORIGIN}{kind} {name})")}
    for row in describe_config(type(getattr(experiment, f"{kind}_config"))):
        if row.search is not None:
            path = (kind, "params", *row.name.split("."))
            given = Given(_as_in_a_file(row, row.search), path, marks)
            dim = _dimension(".".join(path), given, name)
            yield replace(dim, effect=fields.effect(path))


def _as_in_a_file(row: ParameterRow, search: Mapping[str, Any]) -> dict[str, Any]:
    if "choices" in search:
        return {"choice": to_jsonable_python(search["choices"])}
    low = search["low"]
    high = search["high"]
    log = search["log"]
    if row.type.startswith("int"):
        return {"int": [math.ceil(low), math.floor(high)], "log": log}
    return {"loguniform" if log else "uniform": [low, high]}


def parse_space(text: str, name: str, *, source: str = "", folder: Path | None = None) -> Declared:
    """A space from the text of its file.

    Args:
        text: YAML.
        name: what the space is called.
        source: what messages call the file; `space NAME` where empty.
        folder: what relative paths in it are relative to.

    Raises:
        ConfigError: the first of what is wrong with it, with line and key.
    """
    source = source or f"space {name}"
    document = parse_yaml(text, source, folder)
    top = Given(document.data, (), document.marks)
    if top.value is None:
        raise ConfigError(f"{source}: is empty; it must say dims")
    top.expect(isinstance(top.value, dict), "a mapping with dims")
    top.refuse_unknown(*_KEYS)
    mixer = top.value.get("mixer")
    if "mixer" in top.value:
        is_name = isinstance(mixer, str) and mixer != ""
        top.at("mixer").expect(is_name, "the name of the mixer that it is for")
    dims = tuple(_dimensions(top.at("dims"), mixer))
    constraints = Given(top.value.get("constraints", []), ("constraints",), document.marks)
    constraints.expect(isinstance(constraints.value, list), "a list, as in [{less: [a, b]}]")
    return Declared(name, dims, tuple(_constraint(entry, mixer) for entry in constraints.entries()))


def _dimensions(dims: Given, mixer: str | None) -> Iterator[Dimension]:
    is_mapping = isinstance(dims.value, dict) and dims.value != {}
    dims.expect(is_mapping, "a mapping of settings, as in {train.lr: {choice: [1e-3]}}")
    if len(dims.value) > MAX_DIMS:
        raise dims.wrong(f"has {len(dims.value)} settings, must be at most {MAX_DIMS}")
    marks = {  # messages call a dimension by the setting itself
        (*key_path(str(path[1])), *path[2:]): origin
        for path, origin in dims.marks.items()
        if path[:1] == dims.path != path
    }
    for key, value in dims.value.items():
        yield _dimension(key, Given(value, key_path(key), marks), mixer)


def _dimension(key: str, given: Given, mixer: str | None) -> Dimension:
    if "" in given.path:
        raise given.wrong("is not a key; write one as in train.lr")
    given.expect(isinstance(given.value, dict), "a mapping such as {choice: [1, 2]}")
    given.refuse_unknown(*_KINDS, *_OPTIONS)
    kinds = [kind for kind in _KINDS if kind in given.value]
    if len(kinds) != 1:
        has = " and ".join(kinds) or "none"
        raise given.wrong(f"must have one of {', '.join(_KINDS)}, has {has}")
    when = _conditions(given.at("when")) if "when" in given.value else ()
    names = [key, *(condition.key for condition in when)]
    is_mixers = any(name.startswith("mixer.") for name in names)
    values = _distribution(kinds[0], given)
    return Dimension(key, values, when, mixer if is_mixers else None, given.origin)


_WITHOUT_EFFECT = {
    "choice": {"step": "", "log": ""},
    "uniform": {"step": ", or use int", "log": ", or use loguniform"},
    "loguniform": {"step": ", or use int", "log": ", or use loguniform"},
    "int": {},
}
"""Keys that change nothing, by kind, and what to write instead."""


def _distribution(kind: str, given: Given) -> Distribution:
    for word, instead in _WITHOUT_EFFECT[kind].items():
        if word in given.value:
            raise given.at(word).wrong(f"has no effect with {kind}; leave it out{instead}")
    if kind == "choice":
        return CategoricalDistribution(_plain_values(given.at(kind)))
    low, high = _ends(kind, given.at(kind))
    log = given.value.get("log", kind == "loguniform")
    given.at("log").expect(isinstance(log, bool), "true or false")
    if log and low <= 0:
        instead = "log: false" if kind == "int" else "uniform, or a choice with 0 in it"
        message = f"starts at {low:g}, which has no logarithm; begin above 0, or use {instead}"
        raise given.at(kind).wrong(message)
    if kind != "int":
        return FloatDistribution(low, high, log=log)
    step = _step(given.at("step"), low, high, log) if "step" in given.value else 1
    return IntDistribution(low, high, log=log, step=step)


def _plain_values(given: Given) -> tuple[Any, ...]:
    """A list of different plain values."""
    values = given.value
    given.expect(isinstance(values, list) and values != [], "a list of values, as in [1, 2]")
    if len(values) > MAX_VALUES:
        raise given.wrong(f"has {len(values):,} values, must be at most {MAX_VALUES:,}")
    for number, entry in enumerate(given.entries()):
        entry.expect(not isinstance(entry.value, (dict, list)), "a plain value")
        if any(same(entry.value, before) for before in values[:number]):
            raise entry.wrong(f"{shown(entry.value)} is given twice")
    return tuple(values)


def _ends(kind: str, given: Given) -> tuple[Any, Any]:
    is_pair = isinstance(given.value, list) and len(given.value) == 2
    example = "[2, 10]" if kind == "int" else "[1e-4, 1e-2]"
    given.expect(is_pair, f"the smallest and the largest value, as in {example}")
    for entry in given.entries():
        fits = is_number(entry.value) and (kind != "int" or isinstance(entry.value, int))
        entry.expect(fits, "a whole number" if kind == "int" else "a number")
    low, high = given.value if kind == "int" else map(float, given.value)
    first, last = map(shown, given.value)
    if low > high:
        raise given.wrong(f"[{first}, {last}] holds nothing; write [{last}, {first}]")
    if low == high:
        raise given.wrong(f"[{first}, {last}] is one value; set it in the experiment")
    if math.isinf(high - low):
        raise given.wrong(f"[{first}, {last}] is wider than a number can be; take smaller ends")
    return low, high


def _step(given: Given, low: int, high: int, log: bool) -> int:
    step = given.value
    given.expect(type(step) is int and step >= 1, "a whole number >= 1")
    if log and step != 1:
        raise given.wrong("has no effect on a log scale; leave it or log out")
    if (high - low) % step:
        last = high - (high - low) % step
        fitting = f"end at {last} or {last + step}" if last > low else f"end at {last + step}"
        raise given.wrong(f"steps of {step} from {low} never reach {high}; {fitting}")
    return step


def _conditions(given: Given) -> tuple[Condition, ...]:
    is_mapping = isinstance(given.value, dict) and given.value != {}
    given.expect(is_mapping, "a mapping of settings to values, as in {train.optimizer: sgd}")
    found: list[Condition] = []
    for key, value in given.value.items():
        at = given.at(key)
        if not isinstance(value, list):
            at = Given([value], at.path, at.marks)
        found.append(Condition(key, _plain_values(at)))
    return tuple(found)


def _constraint(given: Given, mixer: str | None) -> Constraint:
    is_one = isinstance(given.value, dict) and len(given.value) == 1
    given.expect(is_one, f"a mapping with one of {', '.join(RELATIONS)}")
    given.refuse_unknown(*RELATIONS)
    (relation,) = given.value
    at = given.at(relation)
    values = ()
    if relation == "sum_not_in":
        is_sum = isinstance(at.value, dict) and set(at.value) == {"keys", "values"}
        at.expect(is_sum, "a mapping such as {keys: [a, b], values: [-2, -3]}")
        values = _plain_values(at.at("values"))
        for entry in at.at("values").entries():
            entry.expect(is_number(entry.value), "a number")
        at = at.at("keys")
    is_pair = isinstance(at.value, list) and len(at.value) == 2 and at.value[0] != at.value[1]
    is_pair = is_pair and all(isinstance(key, str) and key for key in at.value)
    at.expect(is_pair, "two different settings, as in [a, b]")
    for_mixer = mixer if any(key.startswith("mixer.") for key in at.value) else None
    origin = given.at(relation).origin
    return Constraint(relation, tuple(at.value), values, for_mixer, origin)

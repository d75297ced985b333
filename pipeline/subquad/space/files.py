"""Spaces as they are said, before they are held against an experiment: files, shipped ones by name,
and `auto`.

A file is strict YAML with `dims`, and `constraints` and `mixer` where there are some. Several
spaces become one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

from optuna.distributions import FloatDistribution, IntDistribution
from pydantic_core import to_jsonable_python

from subquad.errors import ConfigError
from subquad.experiment.refusals import Given, shown, top_of
from subquad.experiment.run import Run
from subquad.experiment.settings import KeyPath, Origin, key_path, shown_target
from subquad.experiment.sources import is_path, stem
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.plugin.effect import Condition, same
from subquad.registry import ParameterRow, describe_config, recipe
from subquad.space.dimension import (
    RELATIONS,
    Constraint,
    Dimension,
    Distribution,
    choice_of,
    is_number,
)
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
    parts = [part.strip() for part in names.split("+")]
    if "" in parts:
        raise ConfigError(f"space {names!r}: a name is missing; write them as in auto+optimizer")
    cwd = cwd or Path.cwd()
    if len(parts) > 1 and is_path(names) and (cwd / names).exists():
        raise ConfigError(
            f"space {shown_target(names)}: + joins spaces; give the file a name without it"
        )
    return merge_spaces([_one(part, experiment, cwd) for part in parts])


def _one(name: str, experiment: Run, cwd: Path) -> Declared:
    if name == AUTO:
        return auto_space(experiment)
    if not is_path(name):
        return parse_space(recipe(name, "space").text(), name)
    path = cwd / name
    folder = path.parent.absolute()
    source = shown_target(name)
    declared = parse_space(read_text(path, source), stem(path.name), source=source, folder=folder)
    return replace(declared, source=str(path.resolve()))


def merge_spaces(spaces: Sequence[Declared]) -> Declared:
    """Several spaces as one. Their order shows in the name alone.

    Raises:
        ConfigError: two of them say different things about one setting, or one is given twice.
    """
    ordered = sorted(spaces, key=_place_of)
    for first, second in combinations(ordered, 2):
        if _place_of(first) == _place_of(second):
            raise ConfigError(f"space {first.name}: given twice; leave one out")
        _refuse_conflict(first, second)
    name = "+".join(space.name for space in spaces)
    dims: list[Dimension] = []
    for space in ordered:
        dims += [dim for dim in space.dims if dim not in dims]
    constraints = dict.fromkeys(chain.from_iterable(space.constraints for space in ordered))
    return Declared(name, tuple(dims), tuple(constraints))


def _place_of(space: Declared) -> tuple[str, str]:
    return space.name, space.source


def _refuse_conflict(first: Declared, second: Declared) -> None:
    for dim, other in product(first.dims, second.dims):
        may_meet = dim.path == other.path and len({dim.mixer, other.mixer} - {None}) < 2
        if may_meet and replace(dim, mixer=other.mixer) != other:
            raise other.wrong(
                f"says something else than {dim.origin} about it; leave it out of one of the spaces"
            )


def auto_space(experiment: Run) -> Declared:
    """The space that the fields of an experiment's mixer and backbone say; without dimensions where
    none says anything.

    A field whose `when` cannot hold in this experiment is left out.

    Raises:
        ConfigError: a field's range holds nothing, or has no logarithm.
    """
    fields = Fields(experiment)
    dims = chain.from_iterable(_of_fields(kind, fields) for kind in ("mixer", "backbone"))
    kept, _, _ = without_idle(list(dims), (), fields)
    return Declared(AUTO, kept)


def is_auto(dim: Dimension) -> bool:
    """Whether a dimension comes from a plugin's field, and not from a file."""
    return dim.origin.source.startswith(_AUTO_ORIGIN)


def _of_fields(kind: str, fields: Fields) -> Iterator[Dimension]:
    """What the fields of a plugin say, read as a file would be."""
    plugin, config = fields.experiment.parts[(kind,)]
    name = plugin.found.name
    origin = Origin(f"{_AUTO_ORIGIN}{kind} {name})")
    for row in describe_config(type(config)):
        if row.search is not None:
            key = f"{kind}.params.{row.name}"
            path = key_path(key)
            given = Given(_as_in_a_file(row, row.search), path, {(): origin})
            yield replace(_dimension(key, given, name), effect=fields.effect(path))


def _as_in_a_file(row: ParameterRow, search: Mapping[str, Any]) -> dict[str, Any]:
    if "choices" in search:
        return {"choice": to_jsonable_python(search["choices"])}
    low, high, log = search["low"], search["high"], search["log"]
    if row.value.startswith("a whole number"):
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
    top = top_of(parse_yaml(text, source, folder))
    if top.value is None:
        raise ConfigError(f"{source}: is empty; it must say dims")
    top.expect_type(dict, "a mapping with dims")
    top.refuse_unknown(*_KEYS)
    mixer = top.at("mixer")
    if "mixer" in top.value:
        mixer.expect_filled(str, "the name of the mixer that it is for")
    dims = tuple(_dimensions(top.at("dims"), mixer.value))
    constraints: list[Constraint] = []
    if "constraints" in top.value:
        given = top.at("constraints")
        given.expect_type(list, "a list, as in [{less: [a, b]}]")
        constraints = [_constraint(entry, mixer.value) for entry in given.entries()]
    return Declared(name, dims, tuple(constraints))


def _dimensions(dims: Given, mixer: str | None) -> Iterator[Dimension]:
    dims.expect_filled(dict, "a mapping of settings, as in {train.lr: {choice: [1e-3]}}")
    count = len(dims.value)
    if count > MAX_DIMS:
        raise dims.wrong(f"has {count} settings, must be at most {MAX_DIMS}")
    marks: dict[KeyPath, Origin] = {}
    for path, origin in dims.marks.items():
        if path[:1] == dims.path != path:
            _, key, *below = path
            marks[(*key_path(str(key)), *below)] = origin
    for key, value in dims.value.items():
        # messages call a dimension by the setting itself
        yield _dimension(key, Given(value, key_path(key), marks), mixer)


def _dimension(key: str, given: Given, mixer: str | None) -> Dimension:
    if "" in given.path:
        raise given.wrong("is not a key; write one as in train.lr")
    given.expect_type(dict, "a mapping such as {choice: [1, 2]}")
    given.refuse_unknown(*_KINDS, *_OPTIONS)
    kinds = [kind for kind in _KINDS if kind in given.value]
    if len(kinds) != 1:
        has = " and ".join(kinds) or "none"
        raise given.wrong(f"must have one of {', '.join(_KINDS)}, has {has}")
    when = _conditions(given.at("when")) if "when" in given.value else ()
    names = [key, *(condition.key for condition in when)]
    return Dimension(
        key, _distribution(kinds[0], given), when, _for_mixer(names, mixer), given.origin
    )


def _for_mixer(keys: Iterable[str], mixer: str | None) -> str | None:
    """The mixer of a file, where one of these settings is a mixer's."""
    return mixer if any(key.startswith("mixer.") for key in keys) else None


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
    values = given.at(kind)
    if kind == "choice":
        return choice_of(_plain_values(values))
    low, high = _ends(kind, values)
    log = kind == "loguniform"
    if "log" in given.value:
        given.at("log").expect_type(bool, "true or false")
        log = given.value["log"]
    if log and low <= 0:
        instead = "log: false" if kind == "int" else "uniform, or a choice with 0 in it"
        raise values.wrong(
            f"starts at {low:g}, which has no logarithm; begin above 0, or use {instead}"
        )
    if kind != "int":
        return FloatDistribution(low, high, log=log)
    step = _step(given.at("step"), low, high, log) if "step" in given.value else 1
    return IntDistribution(low, high, log=log, step=step)


def _plain_values(given: Given) -> tuple[Any, ...]:
    """A list of different values: plain ones, and lists of them."""
    given.expect_filled(list, "a list of values, as in [1, 2]")
    count = len(given.value)
    if count > MAX_VALUES:
        raise given.wrong(f"has {count:,} values, must be at most {MAX_VALUES:,}")
    values: list[Any] = []
    for entry in given.entries():
        value = entry.value
        parts = value if isinstance(value, list) else [value]
        is_plain = not any(isinstance(part, (dict, list)) for part in parts)
        entry.expect(is_plain, "a plain value, or a list of them")
        if any(same(value, before) for before in values):
            raise entry.wrong(f"{shown(value)} is given twice")
        values.append(value)
    return tuple(values)


def _ends(kind: str, given: Given) -> tuple[Any, Any]:
    is_int = kind == "int"
    example = "[2, 10]" if is_int else "[1e-4, 1e-2]"
    words = f"the smallest and the largest value, as in {example}"
    given.expect(isinstance(given.value, list) and len(given.value) == 2, words)
    for entry in given.entries():
        fits = type(entry.value) is int if is_int else is_number(entry.value)
        entry.expect(fits, "a whole number" if is_int else "a number")
    first, last = map(shown, given.value)
    low, high = given.value if is_int else map(float, given.value)
    ends = f"[{first}, {last}]"
    if low > high:
        raise given.wrong(f"{ends} holds nothing; write [{last}, {first}]")
    if low == high:
        raise given.wrong(f"{ends} is one value; set it in the experiment")
    if math.isinf(high - low):
        raise given.wrong(f"{ends} is wider than a number can be; take smaller ends")
    return low, high


def _step(given: Given, low: int, high: int, log: bool) -> int:
    step = given.value
    given.expect(type(step) is int and step >= 1, "a whole number >= 1")
    if log and step != 1:
        raise given.wrong("has no effect on a log scale; leave it or log out")
    beyond = (high - low) % step
    if beyond:
        last = high - beyond
        before = f"{last} or " if last > low else ""
        raise given.wrong(
            f"steps of {step} from {low} never reach {high}; end at {before}{last + step}"
        )
    return step


def _conditions(given: Given) -> tuple[Condition, ...]:
    given.expect_filled(dict, "a mapping of settings to values, as in {train.optimizer: sgd}")
    conditions: list[Condition] = []
    for key, at in given.items():
        if not isinstance(at.value, list):
            at = Given([at.value], at.path, at.marks)
        conditions.append(Condition(key, _plain_values(at)))
    return tuple(conditions)


def _constraint(given: Given, mixer: str | None) -> Constraint:
    words = f"a mapping with one of {', '.join(RELATIONS)}"
    given.expect(isinstance(given.value, dict) and len(given.value) == 1, words)
    given.refuse_unknown(*RELATIONS)
    (relation,) = given.value
    place = given.at(relation)
    keys = place
    sums: tuple[Any, ...] = ()
    if relation == "sum_not_in":
        words = "a mapping such as {keys: [a, b], values: [-2, -3]}"
        has_both = isinstance(place.value, dict) and place.value.keys() == {"keys", "values"}
        place.expect(has_both, words)
        keys = place.at("keys")
        values = place.at("values")
        sums = _plain_values(values)
        for entry in values.entries():
            entry.expect(is_number(entry.value), "a number")
    names = _two_settings(keys)
    return Constraint(relation, names, sums, _for_mixer(names, mixer), place.origin)


def _two_settings(keys: Given) -> tuple[str, ...]:
    given = keys.value if isinstance(keys.value, list) else []
    names = tuple(name for name in given if isinstance(name, str) and name)
    fits = len(names) == len(given) == len({*names}) == 2
    keys.expect(fits, "two different settings, as in [a, b]")
    return names

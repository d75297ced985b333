"""Space files: strict YAML with `dims`, and `constraints` and `mixer` where there are some. Several become one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown, suggest_key
from subquad.experiment.settings import KeyPath, Marks, Origin, one_line, origin_of, problem
from subquad.experiment.strict_yaml import parse_yaml
from subquad.space.dimension import (
    RELATIONS,
    Condition,
    Constraint,
    Dimension,
    Distribution,
    Relation,
    is_number,
    same,
)

MAX_DIMS, MAX_VALUES = 200, 1000
_KEYS = ("mixer", "dims", "constraints")
_KINDS = ("choice", "grid", "uniform", "loguniform", "int")
_OPTIONS = ("when", "step", "log")
_EXAMPLE = "a mapping such as {choice: [1, 2]}"


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


def merge_spaces(spaces: Sequence[Declared]) -> Declared:
    """Several spaces as one. Their order shows in the name alone.

    Raises:
        ConfigError: two of them say different things about one setting, or one is given twice.
    """
    ordered = sorted(spaces, key=lambda space: (space.name, space.source))
    for first, second in combinations(ordered, 2):
        if (first.name, first.source) == (second.name, second.source):
            raise ConfigError(one_line(f"space {first.name}: given twice; leave one out"))
        _refuse_conflict(first, second)
    return Declared(
        "+".join(space.name for space in spaces),
        tuple(dict.fromkeys(dim for space in ordered for dim in space.dims)),
        tuple(dict.fromkeys(one for space in ordered for one in space.constraints)),
    )


def _refuse_conflict(first: Declared, second: Declared) -> None:
    for one in first.dims:
        for other in second.dims:
            meet = one.path == other.path and (one.mixer == other.mixer or None in (one.mixer, other.mixer))
            if meet and replace(one, mixer=None) != replace(other, mixer=None):
                message = f"says something else than {one.origin} about it; leave it out of one of the spaces"
                raise problem(other.key_path, message, {(): other.origin})


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
    data, top = document.data, _Place((), (), document.marks)
    if data is None:
        raise ConfigError(one_line(f"{source}: is empty; it must say dims"))
    if not isinstance(data, dict):
        raise top.wrong(f"got {shown(data)}, must be a mapping with dims")
    _refuse_unknown(data, _KEYS, top)
    mixer = data.get("mixer")
    if "mixer" in data and (not isinstance(mixer, str) or not mixer):
        raise top.below("mixer").wrong(f"got {shown(mixer)}, must be the name of the mixer that it is for")
    dims = tuple(_dimensions(data.get("dims"), mixer, top.below("dims")))
    return Declared(name, dims, tuple(_constraints(data.get("constraints", []), mixer, top.below("constraints"))))


@dataclass(frozen=True)
class _Place:
    """A part of a file, for messages about it.

    Attributes:
        path: its keys in the file.
        shown: what messages call it: below `dims` the setting itself.
        marks: the file's lines.
    """

    path: KeyPath
    shown: KeyPath
    marks: Marks

    def below(self, *keys: str | int) -> _Place:
        return _Place((*self.path, *keys), (*self.shown, *keys), self.marks)

    @property
    def origin(self) -> Origin:
        return origin_of(self.path, self.marks) or Origin("space")

    def wrong(self, message: str) -> ConfigError:
        return problem(self.shown, message, {(): self.origin})


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], at: _Place) -> None:
    for word in given:
        if word not in known:
            raise at.below(word).wrong(f"unknown key{suggest_key((word,), {(): known})}")


def _dimensions(dims: Any, mixer: str | None, at: _Place) -> Iterator[Dimension]:
    if not isinstance(dims, dict) or not dims:
        raise at.wrong(f"got {shown(dims)}, must be a mapping of settings, as in {{train.lr: {{choice: [1e-3]}}}}")
    if len(dims) > MAX_DIMS:
        raise at.wrong(f"has {len(dims)} settings, must be at most {MAX_DIMS}")
    for key, given in dims.items():
        yield _dimension(key, given, mixer, _Place(at.below(key).path, tuple(key.split(".")), at.marks))


def _dimension(key: str, given: Any, mixer: str | None, at: _Place) -> Dimension:
    if not all(key.split(".")):
        raise at.wrong("is not a key; write one as in train.lr")
    if not isinstance(given, dict):
        raise at.wrong(f"got {shown(given)}, must be {_EXAMPLE}")
    _refuse_unknown(given, (*_KINDS, *_OPTIONS), at)
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1:
        raise at.wrong(f"must have one of {', '.join(_KINDS)}, has {' and '.join(kinds) or 'none'}")
    when = _conditions(given, at)
    for_mixer = mixer if any(one.startswith("mixer.") for one in (key, *(one.key for one in when))) else None
    return Dimension(key, _distribution(kinds[0], given, at), when, for_mixer, at.origin)


def _distribution(kind: str, given: Mapping[str, Any], at: _Place) -> Distribution:
    if kind in ("choice", "grid"):
        _refuse_options(given, kind, at, {"step": "", "log": ""})
        return CategoricalDistribution(_plain_values(given[kind], at.below(kind)))
    low, high = _ends(kind, given[kind], at.below(kind))
    if kind != "int":
        _refuse_options(given, kind, at, {"step": ", or use int", "log": ", or use loguniform"})
    log = kind == "loguniform" or _log(given, at)
    if log and low <= 0:
        instead = "log: false" if kind == "int" else "uniform, or a choice with 0 in it"
        raise at.below(kind).wrong(f"starts at {low:g}, which has no logarithm; begin above 0, or use {instead}")
    if kind == "int":
        return IntDistribution(low, high, log=log, step=_step(given, low, high, log, at))
    return FloatDistribution(low, high, log=log)


def _refuse_options(given: Mapping[str, Any], kind: str, at: _Place, instead: Mapping[str, str]) -> None:
    for word, other in instead.items():
        if word in given:
            raise at.below(word).wrong(f"has no effect with {kind}; leave it out{other}")


def _plain_values(given: Any, at: _Place) -> tuple[Any, ...]:
    """A list of different plain values."""
    if not isinstance(given, list) or not given:
        raise at.wrong(f"got {shown(given)}, must be a list of values, as in [1, 2]")
    if len(given) > MAX_VALUES:
        raise at.wrong(f"has {len(given):,} values, must be at most {MAX_VALUES:,}")
    for number, value in enumerate(given):
        if isinstance(value, (dict, list)):
            raise at.below(number).wrong(f"got {shown(value)}, must be a plain value")
        if any(same(value, before) for before in given[:number]):
            raise at.below(number).wrong(f"{shown(value)} is given twice")
    return tuple(given)


def _ends(kind: str, given: Any, at: _Place) -> tuple[Any, Any]:
    example = "[2, 10]" if kind == "int" else "[1e-4, 1e-2]"
    if not isinstance(given, list) or len(given) != 2:
        raise at.wrong(f"got {shown(given)}, must be the smallest and the largest value, as in {example}")
    words = "a whole number" if kind == "int" else "a number"
    for number, value in enumerate(given):
        if not is_number(value) or (kind == "int" and not isinstance(value, int)):
            raise at.below(number).wrong(f"got {shown(value)}, must be {words}")
    low, high = given if kind == "int" else map(float, given)
    if low >= high:
        what = "is one value" if low == high else "holds nothing"
        turned = "set it in the experiment" if low == high else f"write [{shown(given[1])}, {shown(given[0])}]"
        raise at.wrong(f"[{shown(given[0])}, {shown(given[1])}] {what}; {turned}")
    if math.isinf(high - low):
        raise at.wrong(f"[{shown(given[0])}, {shown(given[1])}] is wider than a number can be; take smaller ends")
    return low, high


def _log(given: Mapping[str, Any], at: _Place) -> bool:
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise at.below("log").wrong(f"got {shown(log)}, must be true or false")
    return log


def _step(given: Mapping[str, Any], low: int, high: int, log: bool, at: _Place) -> int:
    if "step" not in given:
        return 1
    step, at = given["step"], at.below("step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        raise at.wrong(f"got {shown(step)}, must be a whole number >= 1")
    if log and step != 1:
        raise at.wrong("has no effect on a log scale; leave it or log out")
    if (high - low) % step:
        last = high - (high - low) % step
        fitting = f"end at {last} or {last + step}" if last > low else f"end at {last + step}"
        raise at.wrong(f"steps of {step} from {low} never reach {high}; {fitting}")
    return step


def _conditions(given: Mapping[str, Any], at: _Place) -> tuple[Condition, ...]:
    if "when" not in given:
        return ()
    when, at = given["when"], at.below("when")
    if not isinstance(when, dict) or not when:
        raise at.wrong(f"got {shown(when)}, must be a mapping of settings to values, as in {{train.optimizer: sgd}}")
    return tuple(
        Condition(key, _plain_values(value if isinstance(value, list) else [value], at.below(key)))
        for key, value in when.items()
    )


def _constraints(given: Any, mixer: str | None, at: _Place) -> Iterator[Constraint]:
    if not isinstance(given, list):
        raise at.wrong(f"got {shown(given)}, must be a list, as in [{{less: [a, b]}}]")
    for number, one in enumerate(given):
        yield _constraint(one, mixer, at.below(number))


def _constraint(given: Any, mixer: str | None, at: _Place) -> Constraint:
    if not isinstance(given, dict) or len(given) != 1:
        raise at.wrong(f"got {shown(given)}, must be a mapping with one of {', '.join(RELATIONS)}")
    word, told = next(iter(given.items()))
    relation: Relation | None = next((one for one in RELATIONS if one == word), None)
    at = at.below(word)
    if relation is None:
        raise at.wrong(f"unknown key{suggest_key((word,), {(): RELATIONS})}")
    keys, values = _sum(told, at) if relation == "sum_not_in" else (_two_settings(told, at), ())
    for_mixer = mixer if any(key.startswith("mixer.") for key in keys) else None
    return Constraint(relation, keys, values, for_mixer, at.origin)


def _sum(told: Any, at: _Place) -> tuple[tuple[str, ...], tuple[float, ...]]:
    if not isinstance(told, dict) or set(told) != {"keys", "values"}:
        raise at.wrong(f"got {shown(told)}, must be a mapping such as {{keys: [a, b], values: [-2, -3]}}")
    values = _plain_values(told["values"], at.below("values"))
    for number, value in enumerate(values):
        if not is_number(value):
            raise at.below("values", number).wrong(f"got {shown(value)}, must be a number")
    return _two_settings(told["keys"], at.below("keys")), values


def _two_settings(told: Any, at: _Place) -> tuple[str, str]:
    is_pair = isinstance(told, list) and len(told) == 2 and all(isinstance(key, str) and key for key in told)
    if not is_pair or told[0] == told[1]:
        raise at.wrong(f"got {shown(told)}, must be two different settings, as in [a, b]")
    return told[0], told[1]

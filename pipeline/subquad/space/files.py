"""Spaces as they are said, before they are held against an experiment: files, shipped ones by name, and `auto`.

A file is strict YAML with `dims`, and `constraints` and `mixer` where there are some. Several spaces become one.
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
from subquad.experiment.refusals import shown, suggest_key
from subquad.experiment.run import Run
from subquad.experiment.settings import KeyPath, Marks, Origin, origin_of, problem, shown_target
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.registry import ParameterRow, describe_config, recipe
from subquad.space.dimension import RELATIONS, Constraint, Dimension, Distribution, is_number
from subquad.space.fields import Fields
from subquad.space.space import ever_active

AUTO = "auto"
_AUTO_ORIGIN = f"space {AUTO} ("
MAX_DIMS, MAX_VALUES = 200, 1000
_KEYS = ("mixer", "dims", "constraints")
_KINDS = ("choice", "grid", "uniform", "loguniform", "int")
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
        raise ConfigError(f"space {shown_target(names)}: + joins spaces; give the file a name without it")
    return merge_spaces([_one(part.strip(), experiment, cwd) for part in parts])


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


def _one(name: str, experiment: Run, cwd: Path) -> Declared:
    if name == AUTO:
        return auto_space(experiment)
    if _is_path(name):
        path, shown = cwd / name, shown_target(name)
        stem = re.sub(r"\.ya?ml$", "", path.name)
        said = parse_space(read_text(path, shown), stem, source=shown, folder=path.parent.absolute())
        return replace(said, source=str(path.resolve()))
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
        tuple(dict.fromkeys(one for space in ordered for one in space.constraints)),
    )


def _refuse_conflict(first: Declared, second: Declared) -> None:
    for one in first.dims:
        for other in second.dims:
            meet = one.path == other.path and (one.mixer == other.mixer or None in (one.mixer, other.mixer))
            if meet and replace(one, mixer=None) != replace(other, mixer=None):
                message = f"says something else than {one.origin} about it; leave it out of one of the spaces"
                raise problem(other.key_path, message, {(): other.origin})


def auto_space(experiment: Run) -> Declared:
    """The space that the fields of an experiment's mixer and backbone say; without dimensions where none says anything.

    A field whose `when` cannot hold in this experiment is left out.

    Raises:
        ConfigError: a field's range holds nothing, or has no logarithm.
    """
    fields = Fields(experiment)
    dims = [dim for kind in ("mixer", "backbone") for dim in _of_fields(kind, experiment, fields)]
    conditions = [condition for dim in dims for condition in dim.conditions]
    rest = {condition.key: fields.value(tuple(condition.key.split("."))) for condition in conditions}

    def idle() -> Dimension | None:
        defaults = rest | {dim.path: fields.default(dim.key_path) for dim in dims if dim.conditions}
        return next((dim for dim in dims if not ever_active(dim, dims, defaults)), None)

    while never := idle():
        dims.remove(never)
    return Declared(AUTO, tuple(dims))


def is_auto(dim: Dimension) -> bool:
    """Whether a dimension comes from a plugin's field, and not from a file."""
    return dim.origin.source.startswith(_AUTO_ORIGIN)


def _of_fields(kind: str, experiment: Run, fields: Fields) -> Iterator[Dimension]:
    name = getattr(experiment, kind).found.name
    origin, mixer = Origin(f"{_AUTO_ORIGIN}{kind} {name})"), name if kind == "mixer" else None
    for row in describe_config(type(getattr(experiment, f"{kind}_config"))):
        if row.search is None:
            continue
        path = (kind, "params", *row.name.split("."))
        if fault := _fault(row.search):
            raise problem(path, fault, {(): origin})
        effect = fields.effect(path)
        yield Dimension(".".join(path), _searched(row, row.search), (), mixer, origin, effect)


def _fault(search: Mapping[str, Any]) -> str:
    """What a plugin got wrong in its own field."""
    if not search["choices"] if "choices" in search else search["low"] >= search["high"]:
        return "has no values to try"
    return f"starts at {search['low']:g}, which has no logarithm" if search.get("log") and search["low"] <= 0 else ""


def _searched(row: ParameterRow, search: Mapping[str, Any]) -> Distribution:
    if "choices" in search:
        return CategoricalDistribution(to_jsonable_python(search["choices"]))
    low, high, log = search["low"], search["high"], search["log"]
    if row.type.startswith("int"):
        return IntDistribution(math.ceil(low), math.floor(high), log=log)
    return FloatDistribution(float(low), float(high), log=log)


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
        raise ConfigError(f"{source}: is empty; it must say dims")
    top.expect(isinstance(data, dict), data, "a mapping with dims")
    _refuse_unknown(data, _KEYS, top)
    mixer = data.get("mixer")
    if "mixer" in data:
        is_name = isinstance(mixer, str) and mixer != ""
        top.below("mixer").expect(is_name, mixer, "the name of the mixer that it is for")
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

    def expect(self, fits: bool, given: Any, words: str) -> None:
        if not fits:
            raise self.wrong(f"got {shown(given)}, must be {words}")


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], at: _Place) -> None:
    for word in given:
        if word not in known:
            raise at.below(word).wrong(f"unknown key{suggest_key((word,), {(): known})}")


def _dimensions(dims: Any, mixer: str | None, at: _Place) -> Iterator[Dimension]:
    is_mapping = isinstance(dims, dict) and dims != {}
    at.expect(is_mapping, dims, "a mapping of settings, as in {train.lr: {choice: [1e-3]}}")
    if len(dims) > MAX_DIMS:
        raise at.wrong(f"has {len(dims)} settings, must be at most {MAX_DIMS}")
    for key, given in dims.items():
        yield _dimension(key, given, mixer, _Place(at.below(key).path, tuple(key.split(".")), at.marks))


def _dimension(key: str, given: Any, mixer: str | None, at: _Place) -> Dimension:
    if not all(key.split(".")):
        raise at.wrong("is not a key; write one as in train.lr")
    at.expect(isinstance(given, dict), given, "a mapping such as {choice: [1, 2]}")
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
    log = given.get("log", kind == "loguniform")
    at.below("log").expect(isinstance(log, bool), log, "true or false")
    if log and low <= 0:
        instead = "log: false" if kind == "int" else "uniform, or a choice with 0 in it"
        raise at.below(kind).wrong(f"starts at {low:g}, which has no logarithm; begin above 0, or use {instead}")
    if kind == "int":
        return IntDistribution(low, high, log=log, step=_step(given.get("step", 1), low, high, log, at.below("step")))
    return FloatDistribution(low, high, log=log)


def _refuse_options(given: Mapping[str, Any], kind: str, at: _Place, instead: Mapping[str, str]) -> None:
    for word, other in instead.items():
        if word in given:
            raise at.below(word).wrong(f"has no effect with {kind}; leave it out{other}")


def _plain_values(given: Any, at: _Place) -> tuple[Any, ...]:
    """A list of different plain values."""
    at.expect(isinstance(given, list) and given != [], given, "a list of values, as in [1, 2]")
    if len(given) > MAX_VALUES:
        raise at.wrong(f"has {len(given):,} values, must be at most {MAX_VALUES:,}")
    for number, value in enumerate(given):
        at.below(number).expect(not isinstance(value, (dict, list)), value, "a plain value")
        if any(same(value, before) for before in given[:number]):
            raise at.below(number).wrong(f"{shown(value)} is given twice")
    return tuple(given)


def _ends(kind: str, given: Any, at: _Place) -> tuple[Any, Any]:
    example, words = ("[2, 10]", "a whole number") if kind == "int" else ("[1e-4, 1e-2]", "a number")
    is_pair = isinstance(given, list) and len(given) == 2
    at.expect(is_pair, given, f"the smallest and the largest value, as in {example}")
    for number, value in enumerate(given):
        fits = is_number(value) and (kind != "int" or isinstance(value, int))
        at.below(number).expect(fits, value, words)
    low, high = given if kind == "int" else map(float, given)
    if low >= high:
        what = "is one value" if low == high else "holds nothing"
        turned = "set it in the experiment" if low == high else f"write [{shown(given[1])}, {shown(given[0])}]"
        raise at.wrong(f"[{shown(given[0])}, {shown(given[1])}] {what}; {turned}")
    if math.isinf(high - low):
        raise at.wrong(f"[{shown(given[0])}, {shown(given[1])}] is wider than a number can be; take smaller ends")
    return low, high


def _step(step: Any, low: int, high: int, log: bool, at: _Place) -> int:
    at.expect(type(step) is int and step >= 1, step, "a whole number >= 1")
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
    is_mapping = isinstance(when, dict) and when != {}
    at.expect(is_mapping, when, "a mapping of settings to values, as in {train.optimizer: sgd}")
    return tuple(
        Condition(key, _plain_values(value if isinstance(value, list) else [value], at.below(key)))
        for key, value in when.items()
    )


def _constraints(given: Any, mixer: str | None, at: _Place) -> Iterator[Constraint]:
    at.expect(isinstance(given, list), given, "a list, as in [{less: [a, b]}]")
    for number, one in enumerate(given):
        yield _constraint(one, mixer, at.below(number))


def _constraint(given: Any, mixer: str | None, at: _Place) -> Constraint:
    is_one = isinstance(given, dict) and len(given) == 1
    at.expect(is_one, given, f"a mapping with one of {', '.join(RELATIONS)}")
    ((relation, told),) = given.items()
    _refuse_unknown(given, RELATIONS, at)
    at, values = at.below(relation), ()
    if relation != "sum_not_in":
        keys = _two_settings(told, at)
    else:
        is_sum = isinstance(told, dict) and set(told) == {"keys", "values"}
        at.expect(is_sum, told, "a mapping such as {keys: [a, b], values: [-2, -3]}")
        values = _plain_values(told["values"], at.below("values"))
        for number, value in enumerate(values):
            at.below("values", number).expect(is_number(value), value, "a number")
        keys = _two_settings(told["keys"], at.below("keys"))
    for_mixer = mixer if any(key.startswith("mixer.") for key in keys) else None
    return Constraint(relation, keys, values, for_mixer, at.origin)


def _two_settings(told: Any, at: _Place) -> tuple[str, str]:
    is_pair = isinstance(told, list) and len(told) == 2 and all(isinstance(key, str) and key for key in told)
    at.expect(is_pair and told[0] != told[1], told, "two different settings, as in [a, b]")
    return told[0], told[1]

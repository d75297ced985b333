"""Read a space file: strict YAML with `dims`, and `constraints` and `mixer` where there are some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown, suggest_key
from subquad.experiment.settings import one_line
from subquad.experiment.strict_yaml import parse_yaml
from subquad.space.declared import Declared
from subquad.space.dimension import KINDS, Condition, Dimension, Kind
from subquad.space.place import Place, plain_values
from subquad.space.ranges import parse_range
from subquad.space.relations import parse_constraints

MAX_DIMS = 200
_KEYS = ("mixer", "dims", "constraints")
_OPTIONS = ("when", "step", "log")
_EXAMPLE = "a mapping such as {choice: [1, 2]}"


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
    data, top = document.data, Place((), (), document.marks)
    if data is None:
        raise ConfigError(one_line(f"{source}: is empty; it must say dims"))
    if not isinstance(data, dict):
        raise top.wrong(f"got {shown(data)}, must be a mapping with dims")
    _refuse_unknown(data, _KEYS, top)
    mixer = data.get("mixer")
    if "mixer" in data and (not isinstance(mixer, str) or not mixer):
        raise top.below("mixer").wrong(f"got {shown(mixer)}, must be the name of the mixer that it is for")
    dims = tuple(_dimensions(data.get("dims"), mixer, top.below("dims")))
    return Declared(name, dims, tuple(parse_constraints(data.get("constraints", []), mixer, top.below("constraints"))))


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], at: Place) -> None:
    for word in given:
        if word not in known:
            raise at.below(word).wrong(f"unknown key{suggest_key((word,), {(): known})}")


def _dimensions(dims: Any, mixer: str | None, at: Place) -> Iterator[Dimension]:
    if not isinstance(dims, dict) or not dims:
        raise at.wrong(f"got {shown(dims)}, must be a mapping of settings, as in {{train.lr: {{choice: [1e-3]}}}}")
    if len(dims) > MAX_DIMS:
        raise at.wrong(f"has {len(dims)} settings, must be at most {MAX_DIMS}")
    for key, given in dims.items():
        yield _dimension(key, given, mixer, Place(at.below(key).path, tuple(key.split(".")), at.marks))


def _dimension(key: str, given: Any, mixer: str | None, at: Place) -> Dimension:
    if not all(key.split(".")):
        raise at.wrong("is not a key; write one as in train.lr")
    if not isinstance(given, dict):
        raise at.wrong(f"got {shown(given)}, must be {_EXAMPLE}")
    _refuse_unknown(given, (*KINDS, *_OPTIONS), at)
    kinds: list[Kind] = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1:
        raise at.wrong(f"must have one of {', '.join(KINDS)}, has {' and '.join(kinds) or 'none'}")
    kind, when = kinds[0], _conditions(given, at)
    for_mixer = mixer if any(one.startswith("mixer.") for one in (key, *(one.key for one in when))) else None
    more: dict[str, Any] = {"when": when, "mixer": for_mixer, "origin": at.origin}
    if kind not in ("choice", "grid"):
        return Dimension(key, kind, **parse_range(kind, given, at), **more)
    for word in ("step", "log"):
        if word in given:
            raise at.below(word).wrong(f"has no effect with {kind}; leave it out")
    return Dimension(key, kind, values=plain_values(given[kind], at.below(kind)), **more)


def _conditions(given: Mapping[str, Any], at: Place) -> tuple[Condition, ...]:
    if "when" not in given:
        return ()
    when, at = given["when"], at.below("when")
    if not isinstance(when, dict) or not when:
        raise at.wrong(f"got {shown(when)}, must be a mapping of settings to values, as in {{train.optimizer: sgd}}")
    return tuple(_condition(key, value, at.below(key)) for key, value in when.items())


def _condition(key: str, value: Any, at: Place) -> Condition:
    return Condition(key, plain_values(value if isinstance(value, list) else [value], at))

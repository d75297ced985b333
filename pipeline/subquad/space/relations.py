"""The `constraints` of a space file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subquad.experiment.refusals import shown, suggest_key
from subquad.space.constraint import RELATIONS, Constraint, Relation
from subquad.space.dimension import is_number
from subquad.space.place import Place, plain_values


def parse_constraints(given: Any, mixer: str | None, at: Place) -> Iterator[Constraint]:
    """Each constraint of a list.

    Raises:
        ConfigError: it is no list, or one of them is none that there is.
    """
    if not isinstance(given, list):
        raise at.wrong(f"got {shown(given)}, must be a list, as in [{{less: [a, b]}}]")
    for number, one in enumerate(given):
        yield _constraint(one, mixer, at.below(number))


def _constraint(given: Any, mixer: str | None, at: Place) -> Constraint:
    if not isinstance(given, dict) or len(given) != 1:
        raise at.wrong(f"got {shown(given)}, must be a mapping with one of {', '.join(RELATIONS)}")
    word, told = next(iter(given.items()))
    relation: Relation | None = next((one for one in RELATIONS if one == word), None)
    at = at.below(word)
    if relation is None:
        raise at.wrong(f"unknown key{suggest_key((word,), {(): RELATIONS})}")
    keys, values = _sum(told, at) if relation == "sum_not_in" else (_settings(told, at), ())
    for_mixer = mixer if any(key.startswith("mixer.") for key in keys) else None
    return Constraint(relation, keys, values, for_mixer, at.origin)


def _sum(told: Any, at: Place) -> tuple[tuple[str, ...], tuple[float, ...]]:
    if not isinstance(told, dict) or set(told) != {"keys", "values"}:
        raise at.wrong(f"got {shown(told)}, must be a mapping such as {{keys: [a, b], values: [-2, -3]}}")
    values = plain_values(told["values"], at.below("values"))
    for number, value in enumerate(values):
        if not is_number(value):
            raise at.below("values", number).wrong(f"got {shown(value)}, must be a number")
    return _settings(told["keys"], at.below("keys")), values


def _settings(told: Any, at: Place) -> tuple[str, str]:
    is_pair = isinstance(told, list) and len(told) == 2 and all(isinstance(key, str) and key for key in told)
    if not is_pair or told[0] == told[1]:
        raise at.wrong(f"got {shown(told)}, must be two different settings, as in [a, b]")
    return told[0], told[1]

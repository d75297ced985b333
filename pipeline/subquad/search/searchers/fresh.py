"""Random points that were not tried yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from typing import Any

from subquad.search.trial import Trial
from subquad.space import Point, Space
from subquad.space.draw import word

MAX_DRAWS = 100
"""Random points for one number before those that are left are listed."""


def identity(point: Mapping[str, Any]) -> str:
    """A text that two points share where they set the same things: 1 and 1.0 do, 1 and true do not."""
    whole = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in point.items()
    }
    return json.dumps(whole, sort_keys=True)


def tried(known: Iterable[Trial]) -> Set[str]:
    """Identities of the points of trials."""
    return {identity(trial.point) for trial in known}


def fresh(space: Space, seed: int, number: int, seen: Set[str]) -> Point | None:
    """`space.draw(seed, number)` where that was not tried; else another one; None where a finite space has no other.

    A pure function of its arguments. A space with a continuous dimension always has another point.

    Args:
        space: what is searched.
        seed: of the search.
        number: of the point.
        seen: identities of the points that were tried.
    """
    for attempt in range(MAX_DRAWS):
        point = space.draw(_seed(seed, attempt), number)
        if identity(point) not in seen:
            return point
    return _left(space, seed, number, seen) if space.is_finite else space.draw(seed, number)


def _left(space: Space, seed: int, number: int, seen: Set[str]) -> Point | None:
    left = [point for point in space.grid() if identity(point) not in seen]
    return left[word(seed, number, "left", 0) % len(left)] if left else None


def _seed(seed: int, attempt: int) -> int:
    return word(seed, attempt, "attempt", 0) if attempt else seed

"""What space files say, before any experiment is known, and how several become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from subquad.errors import ConfigError
from subquad.experiment.settings import one_line, problem
from subquad.space.constraint import Constraint
from subquad.space.dimension import Dimension


@dataclass(frozen=True)
class Declared:
    """A space as it is written.

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


def merge(spaces: Sequence[Declared]) -> Declared:
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
        _distinct([dim for space in ordered for dim in space.dims]),
        tuple(dict.fromkeys(one for space in ordered for one in space.constraints)),
    )


def _refuse_conflict(first: Declared, second: Declared) -> None:
    for one in first.dims:
        for other in second.dims:
            if _meet(one, other) and replace(one, mixer=None) != replace(other, mixer=None):
                message = f"says something else than {one.origin} about it; leave it out of one of the spaces"
                raise problem(other.key_path, message, {(): other.origin})


def _meet(one: Dimension, other: Dimension) -> bool:
    """Whether both could set one thing in one experiment."""
    return one.path == other.path and (one.mixer == other.mixer or None in (one.mixer, other.mixer))


def _distinct(dims: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions without those that say the same again."""
    kept: list[Dimension] = []
    for dim in dims:
        if dim not in kept:
            kept.append(dim)
    return tuple(kept)

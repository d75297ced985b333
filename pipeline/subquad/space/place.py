"""Where a part of a space file stands, for messages about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import KeyPath, Marks, Origin, origin_of, problem
from subquad.space.dimension import same

MAX_VALUES = 1000


@dataclass(frozen=True)
class Place:
    """A part of a file.

    Attributes:
        path: its keys in the file.
        shown: what messages call it: below `dims` the setting itself.
        marks: the file's lines.
    """

    path: KeyPath
    shown: KeyPath
    marks: Marks

    def below(self, *keys: str | int) -> Place:
        return Place((*self.path, *keys), (*self.shown, *keys), self.marks)

    @property
    def origin(self) -> Origin:
        return origin_of(self.path, self.marks) or Origin("space")

    def wrong(self, message: str) -> ConfigError:
        return problem(self.shown, message, {(): self.origin})


def plain_values(given: Any, at: Place) -> tuple[Any, ...]:
    """A list of different plain values.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(given, list) or not given:
        raise at.wrong(f"got {shown(given)}, must be a list of values, as in [1, 2]")
    if len(given) > MAX_VALUES:
        raise at.wrong(f"has {len(given):,} values, must be at most {MAX_VALUES:,}")
    for number, value in enumerate(given):
        if isinstance(value, dict):
            raise at.below(number).wrong(f"got {shown(value)}, must be a plain value")
        if any(same(value, before) for before in given[:number]):
            raise at.below(number).wrong(f"{shown(value)} is given twice")
    return tuple(given)

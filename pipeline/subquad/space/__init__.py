"""Search spaces: read their files, merge them, check them against an experiment, draw points, walk grids.

`check(declared("agf+optimizer", experiment), experiment)` is a `Space`. Imports neither torch, Ray nor a tuner.
"""

from subquad.space.auto import auto
from subquad.space.check import NothingToSearch, check
from subquad.space.constraint import Constraint
from subquad.space.declared import Declared, merge
from subquad.space.dimension import Condition, Dimension
from subquad.space.feasible import builder
from subquad.space.named import declared
from subquad.space.read import parse_space
from subquad.space.space import Point, Space

__all__ = [
    "Condition",
    "Constraint",
    "Declared",
    "Dimension",
    "NothingToSearch",
    "Point",
    "Space",
    "auto",
    "builder",
    "check",
    "declared",
    "merge",
    "parse_space",
]

"""Search spaces: read their files, merge them, check them against an experiment, draw points, walk
grids.

`check_space(find_space("agf+optimizer", experiment), experiment)` is a `Space`. Imports neither
torch nor Ray.
"""

from subquad.errors import UserError

try:
    import optuna  # noqa: F401
except ImportError as error:
    raise UserError("a search needs Optuna: pip install 'subquad[tune]'") from error

from subquad.space.check import NothingToSearch, check_space, read_space, run_at
from subquad.space.dimension import Constraint, Dimension, choice_of
from subquad.space.files import Declared, auto_space, find_space, is_auto, merge_spaces, parse_space
from subquad.space.space import Point, Space, seed_of

__all__ = [
    "Constraint",
    "Declared",
    "Dimension",
    "NothingToSearch",
    "Point",
    "Space",
    "auto_space",
    "check_space",
    "choice_of",
    "find_space",
    "is_auto",
    "merge_spaces",
    "parse_space",
    "read_space",
    "run_at",
    "seed_of",
]

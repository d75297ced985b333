"""Which parts of a space are for the experiment at hand: a space may be for one mixer."""

from __future__ import annotations

from subquad.errors import ConfigError
from subquad.experiment.checked import Checked
from subquad.experiment.settings import one_line
from subquad.space.constraint import Constraint
from subquad.space.declared import Declared
from subquad.space.dimension import Dimension

Parts = tuple[tuple[Dimension, ...], tuple[Constraint, ...]]


def suiting(declared: Declared, experiment: Checked, *, drop: bool) -> Parts:
    """The dimensions and constraints for the experiment's mixer.

    Args:
        declared: the whole.
        experiment: its mixer decides.
        drop: leave those for another mixer out; False: refuse them.

    Raises:
        ConfigError: a space is for another mixer.
    """
    found = experiment.mixer.found
    names = {None, found.name, found.full_name, experiment.experiment.mixer.name}
    strange = next((one for one in (*declared.dims, *declared.constraints) if one.mixer not in names), None)
    if strange is not None and not drop:
        raise ConfigError(
            one_line(
                f"{strange.origin}: is for mixer {strange.mixer!r}, and the experiment has {found.name!r}; "
                f"use another space, or mixer={strange.mixer}"
            )
        )
    dims = {dim.path: dim for dim in declared.dims if dim.mixer in names}
    return tuple(dims.values()), tuple(one for one in declared.constraints if one.mixer in names)

"""What `auto` leaves out of a candidate's space: values that its data and model refuse, as too long
a window.

A plugin's field says what may sensibly be tried anywhere. Whether a value fits is known where the
model stands. Spaces of files are left as they are: their points that do not fit are told as
infeasible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import IntDistribution

from subquad.errors import UserError
from subquad.experiment.settings import get
from subquad.search.candidates import Candidate
from subquad.search.timing import SearchCosts
from subquad.search.trial import Values
from subquad.space import Dimension, Space, choice_of, is_auto

Fits = Callable[[Any], bool]


def narrowed(candidate: Candidate, costs: SearchCosts) -> Candidate:
    """The candidate with the values in its space that fit, each tried by itself with the others
    as they are.
    """
    dims = tuple(
        _narrowed(dim, candidate, costs) if is_auto(dim) else dim for dim in candidate.space.dims
    )
    return replace(candidate, space=replace(candidate.space, dims=dims))


def _narrowed(dim: Dimension, candidate: Candidate, costs: SearchCosts) -> Dimension:
    """A dimension with the values that fit; with its own value alone where none does."""
    options = dim.options
    if options is None:
        return dim
    around = _around(dim, candidate.space)

    def fits(option: Any) -> bool:
        try:
            costs.parameters(candidate.laid({**around, dim.path: option}))
        except UserError:
            return False
        return True

    whole = dim.distribution
    if isinstance(whole, IntDistribution):
        kept = _part(options, fits)
    else:
        kept = [option for option in options if fits(option)]
    if kept and isinstance(whole, IntDistribution):
        return replace(
            dim, distribution=IntDistribution(kept[0], kept[-1], log=whole.log, step=whole.step)
        )
    if not kept:
        own = get(candidate.run.experiment.model_dump(mode="json"), dim.key_path)
        kept = [candidate.space.rest.get(dim.path, own)]
    return replace(dim, distribution=choice_of(kept))


def _around(dim: Dimension, space: Space) -> Values:
    """Values of other dimensions with which this one is searched."""
    others = {other.path: other for other in space.dims}
    found: Values = {}
    for condition in dim.conditions:
        key = condition.key
        if key not in others or condition.holds(space.rest.get(key)):
            continue
        for option in others[key].options or ():
            if condition.holds(option):
                found[key] = option
                break
    return {key: value for key, value in found.items() if value is not None}


def _part(options: Sequence[int], fits: Fits) -> Sequence[int]:
    """The values of a range from the least to the largest that fits; limits of mixers have one
    side.
    """
    if fits(options[0]):
        return options[: bisect_left(options, True, key=lambda option: not fits(option))]
    if fits(options[-1]):
        return options[bisect_left(options, True, key=fits) :]
    return ()

"""The points that a search begins with, looked at without training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from subquad.errors import UserError
from subquad.search.fitting import Fitter
from subquad.search.sampler import Sampler
from subquad.search.trial import Trial


def first_points(sampler: Sampler, fitter: Fitter) -> Iterator[Trial]:
    """Trials as they would be given out, by number: waiting, or infeasible with the reason."""
    known: list[Trial] = []
    while (point := sampler.suggest(len(known), known)) is not None:
        trial = Trial(candidate=fitter.candidate.label, number=len(known), point=point, state="waiting")
        try:
            fitter.fit(point)
        except UserError as error:
            trial = replace(trial, state="infeasible", reason=str(error))
        known.append(trial)
        yield trial

"""Optuna's studies: without its log, and of trials that are kept from one question to the next."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from subquad.search.trial import Goal


class KeptTrial(FrozenTrial):
    """A trial that is part of one study after the other.

    A storage copies each trial that it is given, which takes longer than all that a sampler does
    with it. Nothing changes the values of this one: where a trial changes, Optuna's storage in
    memory puts another one in its place.
    """

    def __init__(self, trial: FrozenTrial):
        vars(self).update(vars(trial))

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptTrial:
        return self


def study_of(
    trials: Iterable[KeptTrial],
    goal: Goal,
    storage: InMemoryStorage,
    sampler: BaseSampler | None = None,
) -> optuna.Study:
    """A study of these trials, in their order, in an empty storage."""
    directions = [StudyDirection[direction.upper()] for direction in goal.directions]
    study_id = storage.create_new_study(directions, "trials")
    for trial in trials:
        storage.create_new_trial(study_id, trial)
    return optuna.load_study(study_name="trials", storage=storage, sampler=sampler)


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's log, and its warnings that parts of it are experimental."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)

"""Spaces and trials for tests of searches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage

from subquad.experiment import Run
from subquad.plugin.effect import Condition
from subquad.search.candidates import Candidate
from subquad.search.journal import Trials
from subquad.search.sampler import Sampler
from subquad.search.trial import Evaluation, Goal, State, Trial, best_of
from subquad.space import Constraint, Dimension, Space

ACCURACY = Goal("accuracy", "max")
PERPLEXITY = Goal("perplexity", "min")

BASIS = Dimension("mixer.params.basis", CategoricalDistribution(("jacobi", "legendre", None)))
MIXED = Space(
    "mixed",
    (
        BASIS,
        Dimension("mixer.params.order", IntDistribution(2, 10, step=2)),
        Dimension(
            "mixer.params.a",
            FloatDistribution(-0.5, 2.0),
            when=(Condition(BASIS.path, ("jacobi",)),),
        ),
        Dimension("train.lr", FloatDistribution(1e-4, 1e-2, log=True)),
        Dimension("backbone.params.ffn_dim", IntDistribution(4, 512, log=True)),
    ),
    (Constraint("less", ("mixer.params.order", "backbone.params.ffn_dim")),),
    {
        BASIS.path: "legendre",
        "mixer.params.a": 1.0,
        "mixer.params.order": 3,
        "backbone.params.ffn_dim": 64,
    },
)
"""Every kind of dimension, a condition, a constraint."""

NINE = Space(
    "nine",
    (
        Dimension("mixer.params.order", IntDistribution(1, 3)),
        Dimension("train.lr", CategoricalDistribution((1e-3, 1e-2, 0.1))),
    ),
    (),
    {},
)

NONE = Space("none")
TOTAL = 100


def curve(*values: float, every: int = 10) -> tuple[Evaluation, ...]:
    """Evaluations at every tenth step of 100."""
    return tuple(Evaluation(step=every * (k + 1), value=value) for k, value in enumerate(values))


def trial(
    number: int,
    *values: float,
    state: State = "running",
    point: dict[str, Any] | None = None,
    **more: Any,
) -> Trial:
    """A trial with these values, of 100 steps."""
    more.setdefault("total_steps", TOTAL)
    return Trial(
        candidate="",
        number=number,
        point=point or {},
        state=state,
        best=best_of([curve(*values)], "max") if values else None,
        **more,
    )


def of_points(
    points: Iterable[dict[str, Any]], score, state: State = "finished", **more: Any
) -> list[Trial]:
    """Trials at these points, each with one value, `score(point)`."""
    return [
        trial(number, score(point), state=state, point=point, **more)
        for number, point in enumerate(points)
    ]


def of(space: Space, goal: Goal = ACCURACY, label: str = "") -> Candidate:
    """A candidate that is never trained."""
    return Candidate(label, {}, cast("Run", None), goal, space)


def studied(known: Iterable[Trial], space: Space = NONE, goal: Goal = ACCURACY) -> Trials:
    """A search in which these trials were begun one after the other, and ended."""
    known = list(known)
    trials = Trials(of(space, goal), InMemoryStorage())
    sampler = Sampler("random", space, 0, first=[each.point for each in known])
    for number, each in enumerate(known):
        assert trials.ask(sampler) == each.point
        trials.record(replace(each, number=number))
    return trials

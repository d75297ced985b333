"""Families of learning curves over a small grid, for samplers and pruners."""

from __future__ import annotations

import numpy as np
from optuna.distributions import CategoricalDistribution, IntDistribution
from replay import Table

from subquad.search.trial import Evaluation, Goal, identity
from subquad.space import Dimension, Space

STEPS = 1000
GOAL = Goal("accuracy", "max")


def grid_space(orders: int = 6, rates: int = 6) -> Space:
    """An order 2, 3, ... and a list of learning rates."""
    dims = (
        Dimension("mixer.params.order", IntDistribution(2, 1 + orders)),
        Dimension(
            "train.lr",
            CategoricalDistribution([float(f"{1e-4 * 2.5**k:.3g}") for k in range(rates)]),
        ),
    )
    return Space("synthetic", dims, (), {})


def synthetic_table(
    seed: int, *, space: Space | None = None, noise: float = 0.01, evaluations: int = 10
) -> Table:
    """Curves of exponential approach to a level with one best place that the seed decides.

    High learning rates approach faster but to a lower level, so curves cross; each point has an
    offset of its own, and each evaluation its own noise.
    """
    space = space or grid_space()
    dims = space.dims
    rng = np.random.Generator(np.random.Philox(seed))
    best, width = rng.uniform(0.15, 0.85, len(dims)), rng.uniform(0.4, 0.9, len(dims))
    steps = [STEPS * (k + 1) // evaluations for k in range(evaluations)]
    curves = {}
    for point in space.grid():
        at = np.array([_place(dim, point[dim.path]) for dim in dims])
        level = 0.9 - 0.25 * float((((at - best) / width) ** 2).sum()) + rng.normal(0, noise)
        speed = 0.25 * 0.4 ** float(at[-1])
        values = (
            level
            - (level - 0.1) * np.exp(-np.array(steps) / STEPS / speed)
            + rng.normal(0, noise, len(steps))
        )
        curves[identity(point)] = tuple(
            Evaluation(step=step, value=float(value), loss=1 - float(value))
            for step, value in zip(steps, values, strict=True)
        )
    return Table(space=space, goal=GOAL, total_steps=STEPS, curves=curves)


def _place(dim: Dimension, value: object) -> float:
    """Where a value stands in its dimension, 0 to 1."""
    options = list(dim.options or ())
    return options.index(value) / max(1, len(options) - 1)

"""Searches that are planned and not run: which points would be tried, and whether each dimension
changes anything.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from optuna.distributions import CategoricalDistribution
from optuna.storages import InMemoryStorage

from subquad.engine.feed import training_batches
from subquad.engine.group import Group
from subquad.engine.parts import build_parts
from subquad.engine.step import train_step
from subquad.errors import UserError
from subquad.experiment import Run, load_study
from subquad.plugin import MixerPlugin
from subquad.preparation.costs import StudyCosts
from subquad.registry import find_plugins, resolve
from subquad.search.candidates import Candidate
from subquad.search.journal import Trials
from subquad.search.prepare import MAX_FRUITLESS
from subquad.search.search import Search, plan_search
from subquad.search.settings import Settings
from subquad.search.trial import Evaluation, Trial
from subquad.space import Dimension, NothingToSearch, Point

BASE = """\
name: small
dataset:
  name: recall
  params: {num_pairs: 256, num_keys: 256, num_values: 8,
    train_size: 32, validation_size: 16, test_size: 16}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 32, num_heads: 2, dropout: 0.1}}
train: {epochs: 1, batch_size: 8}
tracking: {uri: off}
"""
TRIALS = 12
PAIRS = 4
"""Pairs of values of a dimension that are tried before it is said to have no effect."""


def mixers() -> list[str]:
    """All that are installed, by their names."""
    return sorted(found.name for found in find_plugins("mixer") if found.distribution == "subquad")


def ways_of(mixer: str) -> dict[str, dict]:
    """The ways in which a mixer works: parameters by name."""
    plugin = resolve("mixer", mixer).plugin
    assert isinstance(plugin, MixerPlugin)
    return {"default": {}, **plugin.variants}


def spaces_of(mixer: str) -> list[str]:
    """`auto`, the optimiser's, both, and the shipped space of the mixer."""
    shipped = [
        found.name
        for found in find_plugins("space")
        if found.name in (mixer, f"{mixer}-paper-grid")
    ]
    return ["auto", "optimizer", "auto+optimizer", *shipped]


def planned(mixer: str, params: dict, space: str, sampler: str, folder: Path) -> Search | None:
    """A search of one mixer; None where there is nothing to search, or the sampler cannot search
    it.
    """
    path = folder / "small.yaml"
    if not path.exists():
        path.write_text(BASE)
    settings = [f"mixer.params.{name}={_text(value)}" for name, value in params.items()]
    try:
        search = plan_search(
            load_study(str(path), [f"mixer={mixer}", *settings]), Settings(space, sampler=sampler)
        )
        search.sampler(search.candidates[0])
    except NothingToSearch:
        return None
    except UserError as error:
        if sampler == "grid" and "grid" in str(error):
            return None
        raise
    return search


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def tried(search: Search, costs: StudyCosts) -> tuple[list[Point], list[str]]:
    """Points that can run, as many as a budget has trials, and why others cannot.

    Finished trials have values that are drawn, so that a model of them has something to go by.
    """
    candidate = search.candidates[0]
    sampler, draw = search.sampler(candidate), random.Random(0)
    trials = Trials(candidate, InMemoryStorage())
    points, reasons, in_a_row = list[Point](), list[str](), 0
    while len(points) < TRIALS and in_a_row < MAX_FRUITLESS:
        number = len(trials.known)
        point = trials.ask(sampler)
        if point is None:
            break
        trial = Trial(candidate=candidate.label, number=number, point=point, state="infeasible")
        try:
            costs.parameters(at(candidate, point))
            points.append(point)
            in_a_row = 0
            best = Evaluation(step=1, value=draw.random(), loss=1.0)
            trial = replace(trial, state="finished", best=best)
        except UserError as error:
            reasons.append(str(error))
            in_a_row += 1
        trials.record(trial)
    return points, reasons


def at(candidate: Candidate, point: Point) -> Run:
    """The experiment of a point."""
    return candidate.laid(candidate.space.settings(point))


def without_effect(search: Search, points: list[Point], costs: StudyCosts) -> Iterator[str]:
    """Dimensions of which no two values train to other weights, all else alike."""
    candidate = search.candidates[0]
    for dim in candidate.space.dims:
        pairs = itertools.islice(_pairs(candidate, dim, points), PAIRS)
        if not any(
            trained(candidate, pair, costs) != trained(candidate, other, costs)
            for pair, other in pairs
        ):
            yield dim.path


def _pairs(
    candidate: Candidate, dim: Dimension, points: list[Point]
) -> Iterator[tuple[Point, Point]]:
    """Points, and the same with the value that another point has."""
    drawn = [candidate.space.draw(1, number) for number in range(60)]
    having = [point for point in [*points, *drawn] if dim.path in point]
    values = [point[dim.path] for point in having]
    if isinstance(dim.distribution, CategoricalDistribution):
        values += dim.distribution.choices
    for point in having:
        for value in dict.fromkeys(values):
            if value != point[dim.path]:
                yield point, {**point, dim.path: value}


def trained(candidate: Candidate, point: Point, costs: StudyCosts) -> str:
    """Weights after two steps from one seed, as a text; why there are none where the point
    cannot run.
    """
    try:
        run = at(candidate, point)
        parts = build_parts(run, Group(), costs.data(run)[0])
    except UserError:
        return "cannot run"
    for step, (micros, samples) in enumerate(training_batches(parts, 0, workers=0)):
        train_step(parts, micros, samples, parts.schedule(step))
        if step == 1:
            break
    sums = [
        (tuple(parameter.shape), parameter.detach().double().sum().item())
        for parameter in parts.bare_model.parameters()
    ]
    return repr([*sums, torch.get_rng_state().sum().item()])

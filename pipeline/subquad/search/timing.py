"""How long training and evaluation take here, by a few timed steps, and whether they report what a
search is after.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import chain
from statistics import median
from typing import TypedDict

import numpy as np
import torch

from subquad.data import Split, Subset
from subquad.engine.evaluate import evaluate
from subquad.engine.feed import training_batches
from subquad.engine.group import Group
from subquad.engine.parts import Parts, build_parts
from subquad.engine.step import train_step
from subquad.errors import PluginError
from subquad.execution.local import device_of
from subquad.experiment import Run
from subquad.preparation.costs import StudyCosts

ROUNDS, WARM_UP, TIMED = 3, 2, 5
EVALUATED = 2
"""Batches of a timed evaluation."""
MAX_SECONDS = 4.0
"""Of a round's steps; slow models get fewer of them."""


class Timing(TypedDict):
    """Of a candidate's own experiment, with one worker.

    Attributes:
        step: seconds of a training step.
        evaluation: seconds of an evaluation on the whole validation split.
        spread: largest difference of a step's time between rounds, relative to their median.
    """

    step: float
    evaluation: float
    spread: float


_Round = tuple[list[float], float]
"""Seconds of each step after the warm-up, and of an evaluation of the whole validation split."""


class SearchCosts(StudyCosts):
    """What fitting and estimating need of the data and models of a search."""

    def check_metric(self, run: Run) -> None:
        """Refuse a task that does not report its own metric, on a model that was not trained.

        Raises:
            PluginError: what it reports instead.
        """
        dataset, _ = self.data(run)
        metrics, _ = evaluate(self._parts(run), _first(dataset.split("validation"), 2))
        metric = run.goal.metric
        if metric not in metrics:
            reported = ", ".join(metrics) or "nothing"
            raise PluginError(
                f"task {run.task.found.name!r}: its metric {metric!r} is never "
                f"reported, so nothing can be selected; it reports {reported}"
            )

    def timings(self, runs: Mapping[str, Run]) -> dict[str, Timing]:
        """What steps and evaluations take with one worker, a batch's fetching included: medians of
        several rounds.

        In each round every run has its turn, so that what else the machine does meets all of them
        alike. Nothing is written, and nothing of it stays: a trial seeds the generators itself.

        Args:
            runs: the candidates' own experiments, by label.
        """
        rounds = defaultdict[str, list[_Round]](list)
        for _ in range(ROUNDS):
            for label, run in runs.items():
                parts = self._parts(run)
                split = self.data(run)[0].split("validation")
                rounds[label].append((_step_seconds(parts), _evaluation_seconds(parts, split)))
        return {label: _timing(timed) for label, timed in rounds.items()}

    def _parts(self, run: Run) -> Parts:
        dataset, _ = self.data(run)
        return build_parts(run, Group(device=device_of(run.experiment.resources)), dataset)


def _timing(rounds: list[_Round]) -> Timing:
    medians = [median(steps) for steps, _ in rounds]
    return Timing(
        step=median(chain.from_iterable(steps for steps, _ in rounds)),
        evaluation=median(evaluation for _, evaluation in rounds),
        spread=(max(medians) - min(medians)) / median(medians),
    )


def _step_seconds(parts: Parts) -> list[float]:
    seconds: list[float] = []
    start = time.perf_counter()
    before = start
    for step, (micros, samples) in enumerate(training_batches(parts, 0, workers=0)):
        train_step(parts, micros, samples, parts.schedule(step))
        _wait(parts.group.device)
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
        if len(seconds) == WARM_UP + TIMED or now - start > MAX_SECONDS:
            break
    return seconds[WARM_UP:] or seconds[-1:]


def _evaluation_seconds(parts: Parts, split: Split) -> float:
    """Of the whole split, by a few batches of it."""
    few = _first(split, EVALUATED * (parts.train.eval_batch_size or parts.train.batch_size))
    start = time.perf_counter()
    evaluate(parts, few)
    _wait(parts.group.device)
    return (time.perf_counter() - start) * len(split) / len(few)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _first(split: Split, count: int) -> Split:
    """The first samples of a split."""
    return Subset(split, np.arange(min(count, len(split))))

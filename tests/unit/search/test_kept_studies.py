"""What Optuna's studies keep from one question to the next changes no answer: it is that of a
study made anew.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from time import process_time

import optuna
import pytest
from search_trials import ACCURACY, MIXED, NINE, PERPLEXITY, curve, trial

from subquad.search.optuna_study import KeptTrial, quiet
from subquad.search.pruner import PRUNERS, Pruner
from subquad.search.sampler import Sampler
from subquad.search.settings import PrunerName
from subquad.search.trial import Curve, Evaluation, Goal, Trial
from subquad.space import Point

SEEDS = [0, 1]
COSTLY = Goal("accuracy", "max", "flops")
AT_ONCE = 4


@dataclass
class History:
    """A search in which trials run side by side, and end in any order and in any way.

    Attributes:
        every: steps of 100 between two evaluations; with 40, one passes two rungs of successive
            halving.
        seeds: runs of a trial, one after the other.
    """

    random: Random
    every: int = 10
    seeds: int = 1
    trials: list[Trial] = field(default_factory=list)

    @property
    def running(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.ended]

    def begin(self, point: Point) -> None:
        number = len(self.trials)
        state = (
            "infeasible"
            if self.random.random() < 0.1
            else self.random.choice(["waiting", "running"])
        )
        unknown = {"total_steps": 0} if self.random.random() < 0.05 else {}
        self.trials.append(
            trial(number, state=state, point=point, flops=1.0 + self.random.random(), **unknown)
        )

    def is_over(self, trial: Trial) -> bool:
        return len(trial.curves) == self.seeds and trial.curve[-1].step == 100

    def evaluate(self, trial: Trial) -> Trial:
        """A trial after its next evaluation, which may be the first one of its next seed."""
        curves = list(trial.curves) or [()]
        if curves[-1] and curves[-1][-1].step == 100:
            curves.append(())
        curves[-1] = self._longer(curves[-1])
        return self._put(replace(trial, state="running", curves=tuple(curves)))

    def _longer(self, curve: Curve) -> Curve:
        step = min(100, (curve[-1].step if curve else 0) + self.every)
        value = (
            math.nan
            if self.random.random() < 0.05
            else self.random.choice([0.25, 0.5, self.random.random()])
        )
        return (*curve, Evaluation(step=step, value=value, loss=self.random.random()))

    def end(self, trial: Trial) -> None:
        state = self.random.choice(["finished", "finished", "pruned", "failed"])
        self._put(replace(trial, state=state))

    def _put(self, trial: Trial) -> Trial:
        self.trials[trial.number] = trial
        return trial

    def read(self) -> list[Trial]:
        """As a reader of the folder gives them: one that ended is the same object each time."""
        return [trial if trial.ended else copy.deepcopy(trial) for trial in self.trials]

    def events(self, count: int) -> Iterator[Trial | None]:
        """None where a point is asked for, and a trial after each evaluation."""
        for _ in range(count):
            running = self.running
            if len(running) < AT_ONCE and self.random.random() < 0.5:
                yield None
            elif running:
                chosen = self.random.choice(running)
                if self.is_over(chosen) or self.random.random() < 0.25:
                    self.end(chosen)
                else:
                    yield self.evaluate(chosen)


def point_made_anew(sampler: Sampler, number: int, known: list[Trial]) -> Point | None:
    """A new sampler's point, on a storage that copies its trials as it does those of others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptTrial, "__deepcopy__", None)
        return sampler.suggest(number, copy.deepcopy(known))


def verdict_made_anew(
    name: PrunerName, goal: Goal, given: Mapping[str, int], number: int, known: list[Trial]
) -> bool:
    """Optuna's verdict on a study to which the curves of all trials are told by its own
    interface.
    """
    trial = known[number]
    if name == "none" or trial.curve[-1].step >= trial.total_steps:
        return False
    make, schema = PRUNERS[name]
    pruner = make(**schema(**given).model_dump())
    study = optuna.create_study(direction=goal.directions[0], pruner=pruner)
    seed = len(trial.curves) - 1
    others = [
        other
        for other in known
        if other is not trial and len(other.curves) > seed and other.total_steps
    ]
    pruned = False
    for other in [*others, trial]:
        optuna_trial = study.ask()
        for evaluation in other.curves[seed]:
            optuna_trial.report(evaluation.value, evaluation.step)  # of 100 steps
            pruned = optuna_trial.should_prune()
        if other.state == "finished":
            study.tell(optuna_trial, 0.0)
    return pruned


@pytest.mark.parametrize("goal", [ACCURACY, PERPLEXITY, COSTLY], ids=["max", "min", "front"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("random", MIXED),
        ("random", NINE),
        ("grid", NINE),
        ("tpe", MIXED),
        ("tpe", NINE),
        pytest.param("gp", MIXED, marks=pytest.mark.extended),
    ],
)
def test_points(name, space, seed, goal):
    kept = Sampler(name, space, goal, seed)
    history = History(Random(seed))
    suggested = 0
    for event in history.events(40 if name == "gp" else 80):
        if event is not None:
            continue
        number, known = len(history.trials), history.read()
        point = kept.suggest(number, known)
        assert point == point_made_anew(Sampler(name, space, goal, seed), number, known)
        if point is None:
            break
        history.begin(point)
        suggested += 1
    assert suggested > 8


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("every", [5, 10, 40])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("goal", [ACCURACY, PERPLEXITY], ids=["max", "min"])
@pytest.mark.parametrize("name", PRUNERS)
def test_verdicts(name, goal, seed, every, seeds):
    given = {"n_startup_trials": 2, "n_warmup_steps": 0} if name == "median" else {}
    kept = Pruner(name, goal, given)
    history = History(Random(seed), every, seeds)
    verdicts = set()
    for event in history.events(150):
        if event is None:
            history.begin({})
            continue
        known = history.read()
        verdict = bool(kept.reason_to_stop(event.number, known))
        with quiet():
            assert verdict == verdict_made_anew(name, goal, given, event.number, known)
        verdicts.add(verdict)
    assert verdicts == ({False} if name == "none" else {False, True})


@pytest.mark.parametrize("name", ["median", "asha"])
def test_each_seed_has_curves_of_its_own(name):
    kept = Pruner(name, ACCURACY)
    good, bad = curve(*[0.9] * 10), curve(*[0.1] * 10)
    others = [replace(trial(number, state="finished"), curves=(good, bad)) for number in range(6)]
    first = trial(6, *[0.5] * 3)
    second = replace(first, curves=(good, first.curve))
    assert kept.reason_to_stop(6, [*others, first])
    assert not kept.reason_to_stop(6, [*others, second])


@pytest.mark.parametrize("name", ["median", "asha"])
def test_another_history_is_judged_by_itself(name):
    """As where a search's folder was put back to an earlier state."""
    kept = Pruner(name, ACCURACY)
    good, bad = (
        [trial(number, *[value] * 10, state="finished") for number in range(6)]
        for value in (0.9, 0.1)
    )
    newest = trial(6, *[0.5] * 3)
    assert kept.reason_to_stop(6, [*good, newest])
    assert not kept.reason_to_stop(6, [*bad, newest])


@pytest.mark.extended
@pytest.mark.parametrize("count", [100, 500, 2000])
def test_cpu_time_of_an_answer(count):
    """Prints what one more point and one more verdict take, beside a search with so many trials
    that ended.
    """
    random = Random(0)
    known = [
        trial(
            number,
            *[random.random() for _ in range(10)],
            state="finished",
            point=MIXED.draw(1, number),
        )
        for number in range(count)
    ]
    newest = trial(count, *[0.9] * 5, point=MIXED.draw(1, count))
    sampler = Sampler("tpe", MIXED, ACCURACY, 0)
    pruners = [Pruner("median", ACCURACY), Pruner("asha", ACCURACY)]
    questions: dict[str, Callable[[], object]] = {
        "point, tpe": lambda: sampler.suggest(count, known)
    }
    for pruner in pruners:
        questions[f"verdict, {pruner.name}"] = partial(
            pruner.reason_to_stop, count, [*known, newest]
        )
    for what, ask in questions.items():
        ask()
        start = process_time()
        for _ in range(5):
            ask()
        print(f"{count} trials, {what}: {1e3 * (process_time() - start) / 5:.1f} ms")

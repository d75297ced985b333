"""Which trial is ended early: Optuna's pruners on a study of the curves in the search's folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from optuna import Study
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import TrialState
from pydantic import Field

from subquad.errors import ConfigError
from subquad.experiment.key_names import known_keys
from subquad.experiment.refusals import refusal, validated
from subquad.plugin import Config
from subquad.search.folder import Trials, place_of
from subquad.search.optuna_study import KeptTrial, quiet, study_of
from subquad.search.settings import PrunerName
from subquad.search.trial import Goal, Trial, Values


class _Median(Config):
    """Settings of MedianPruner."""

    n_startup_trials: int = Field(5, ge=0)
    n_warmup_steps: int = Field(10, ge=0)


class _Halving(Config):
    """Settings of SuccessiveHalvingPruner."""

    min_resource: int = Field(10, ge=1)
    reduction_factor: int = Field(3, ge=2)


PRUNERS: Mapping[PrunerName, tuple[type[BasePruner], type[Config]]] = {
    "none": (NopPruner, Config),
    "median": (MedianPruner, _Median),
    "asha": (SuccessiveHalvingPruner, _Halving),
}
"""Optuna's class, and its settings under its names.

Steps and resources are per cent of a trial's steps, so that trials of different lengths are
comparable.
"""


class Pruner:
    """Judges the trials of one candidate: a function of the curves there are.

    Args:
        name: see `PRUNERS`.
        goal: what is better.
        settings: of the pruner, as the user gave them, by Optuna's names.

    Raises:
        ConfigError: a setting is wrong, or the goal has two objectives, which only "none" can do:
            by the metric alone it would end the cheap trials of the front.
    """

    def __init__(self, name: PrunerName, goal: Goal, settings: Values | None = None):
        self.name: PrunerName = name
        self.goal = goal
        make, _ = PRUNERS[name]
        self._pruner = make(**_checked(name, settings or {}))
        self._settled: dict[int, list[tuple[Trial, KeptTrial]]] = defaultdict(list)
        """Of each seed the trials before the first one that runs, as Optuna's study has them.
        None of this changes.
        """
        if goal.cost != "none" and name != "none":
            raise ConfigError(
                f"pruner: {name} looks at {goal.metric} alone; with a second objective write none"
            )

    def reason_to_stop(self, number: int, known: Sequence[Trial]) -> str:
        """Why trial `number` shall end after its newest evaluation, in one line; "" where it shall
        go on.

        Of several seeds the newest one's curve is held against those of the same seed. Trials whose
        `total_steps` is 0 are not compared.

        Args:
            number: the trial, whose newest curve ends with the newest evaluation.
            known: every trial of the candidate by number, also those that ended, and `number`
                itself.
        """
        trial = next(trial for trial in known if trial.number == number)
        newest = trial.curve[-1]
        total = trial.total_steps
        is_last = newest.step >= total
        if self.name == "none" or is_last:
            return ""
        with quiet():
            is_pruned = self._prunes(trial, known)
        if not is_pruned:
            return ""
        value = self.goal.printed.text(newest.value)
        return f"{self.name}: {value} at step {newest.step} of {total}"

    def _prunes(self, trial: Trial, known: Sequence[Trial]) -> bool:
        seed = len(trial.curves) - 1
        start = 0
        for other in known:
            if other is trial or not other.ended:
                break
            start += 1
        settled = _with_curve(known[:start], seed)
        kept = self._settled[seed]
        if [other for other, _ in kept] != settled[: len(kept)]:
            kept.clear()
        new = settled[len(kept) :]
        storage = InMemoryStorage()
        study = study_of([frozen for _, frozen in kept], self.goal, storage)
        report = partial(self._report, study, storage, seed)
        for other in new:
            report(other)
        study_id = storage.get_study_id_from_name(study.study_name)
        new_reported = storage.get_all_trials(study_id, deepcopy=False)[len(kept) :]
        for other, frozen in zip(new, new_reported, strict=True):
            kept.append((other, KeptTrial(frozen)))
        for other in _with_curve(known[start:], seed):
            if other is not trial:
                report(other)
        return report(trial)

    def _report(self, study: Study, storage: BaseStorage, seed: int, trial: Trial) -> bool:
        """Tell a curve; asked after each evaluation, successive halving notes what the trial
        had at each rung.
        """
        own = storage.create_new_trial(storage.get_study_id_from_name(study.study_name))
        curve = trial.curves[seed]
        pruned = False
        for evaluation in curve:
            percent = int(100 * evaluation.step / trial.total_steps + 1e-9)
            storage.set_trial_intermediate_value(own, percent, evaluation.value)
            if self.name == "asha" or evaluation is curve[-1]:
                pruned = self._pruner.prune(study, storage.get_trial(own))
        if trial.state == "finished":
            storage.set_trial_state_values(own, TrialState.COMPLETE, [0.0])
        return pruned


def _with_curve(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """Those that can be compared: they have a curve of the seed, and it is known how long they
    are.
    """
    comparable: list[Trial] = []
    for trial in trials:
        has_curve = len(trial.curves) > seed
        if trial.total_steps and has_curve:
            comparable.append(trial)
    return comparable


def _checked(name: PrunerName, given: Values) -> Values:
    """Arguments for the class of a pruner; messages name a setting `pruner.n_warmup_steps`."""
    _, schema = PRUNERS[name]
    path = ("pruner",)

    settings, faults = validated(schema, given, path, lambda: known_keys(schema, path))
    if settings is None:
        raise refusal(faults)
    return settings.model_dump()


def prune_reason(trials: Trials, pruners: Mapping[str, Pruner], run: Path) -> str:
    """What the engine asks after every evaluation of a trial: why it shall end, "" where it shall
    go on.

    It knows nothing but the search's folder, so with the first two given it may travel to another
    process that sees the same files.

    Args:
        trials: the search's.
        pruners: of each candidate, by label.
        run: the trial's folder.
    """
    candidate, number = place_of(run)
    return pruners[candidate].reason_to_stop(number, trials.of(candidate))

"""Which trial is ended early: Optuna's pruners on a study that is made anew of the curves in the search's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState

from subquad.errors import ConfigError
from subquad.search.folder import Trials, place_of
from subquad.search.kinds import Kind, configured, quiet
from subquad.search.trial import Curve, Goal, Trial

PRUNERS = {
    "none": Kind(NopPruner),
    "median": Kind(MedianPruner, {"n_warmup_steps": 10}),
    "asha": Kind(SuccessiveHalvingPruner, {"min_resource": 10, "reduction_factor": 3}),
    "hyperband": Kind(HyperbandPruner, {"min_resource": 10, "max_resource": 100}),
}
"""Steps and resources are per cent of a trial's steps, so that trials of different lengths are comparable."""
_HALVING = ("asha", "hyperband")


class Pruner:
    """Judges the trials of one candidate: a function of the curves there are.

    Args:
        name: see `PRUNERS`.
        goal: what is better.
        candidate: its label; Hyperband's brackets follow from it.
        settings: of the pruner, as the user gave them, by Optuna's names.

    Raises:
        ConfigError: there is no such pruner, a setting is wrong, or the goal has two objectives, which only "none" can
            do: by the metric alone it would end the cheap trials of the front.
    """

    def __init__(self, name: str, goal: Goal, *, candidate: str = "", settings: Mapping[str, Any] | None = None):
        self.name, self.goal = name, goal
        self._candidate = candidate
        self._arguments = configured("pruner", name, PRUNERS, settings or {})
        if goal.cost != "none" and name != "none":
            raise ConfigError(f"pruner: {name} looks at {goal.metric} alone; with a second objective write none")

    def reason_to_stop(self, number: int, known: Sequence[Trial]) -> str:
        """Why trial `number` shall end after its newest evaluation, in one line; "" where it shall go on.

        Of several seeds the newest one's curve is held against those of the same seed. Trials whose `total_steps` is 0
        are not compared.

        Args:
            number: the trial, whose newest curve ends with the newest evaluation.
            known: every trial of the candidate by number, also those that ended, and `number` itself.
        """
        trial = next(one for one in known if one.number == number)
        newest, total = trial.curve[-1], trial.total_steps
        if self.name == "none" or newest.step >= total:
            return ""
        with quiet():
            if not self._prunes(trial, known):
                return ""
        return f"{self.name}: {self.goal.text(newest.value)} at step {newest.step} of {total}"

    def _prunes(self, trial: Trial, known: Sequence[Trial]) -> bool:
        storage, pruner = InMemoryStorage(), PRUNERS[self.name].make(**self._arguments)
        direction = StudyDirection[self.goal.directions[0].upper()]
        name = self._candidate or "trials"
        study_id = storage.create_new_study([direction], name)
        study = optuna.load_study(study_name=name, storage=storage)
        ids = {one.number: storage.create_new_trial(study_id) for one in known}
        seed = len(trial.curves) - 1

        def report(one: Trial, curve: Curve) -> bool:
            """Tell a curve; asked after each evaluation, successive halving notes what the trial had at each rung."""
            pruned = False
            for place, each in enumerate(curve):
                percent = int(100 * each.step / one.total_steps + 1e-9)
                storage.set_trial_intermediate_value(ids[one.number], percent, each.value)
                if self.name in _HALVING or place == len(curve) - 1:
                    pruned = pruner.prune(study, storage.get_trial(ids[one.number]))
            return pruned

        for one in known:
            if one.number != trial.number and len(one.curves) > seed and one.total_steps:
                report(one, one.curves[seed])
                if one.state == "finished":
                    storage.set_trial_state_values(ids[one.number], TrialState.COMPLETE, [0.0])
        return report(trial, trial.curve)


def judge(trials: Trials, pruners: Mapping[str, Pruner], run: Path) -> str:
    """What the engine asks after every evaluation of a trial: why it shall end, "" where it shall go on.

    It knows nothing but the search's folder, so with the first two given it may travel to another process that sees
    the same files.

    Args:
        trials: the search's.
        pruners: of each candidate, by label.
        run: the trial's folder.
    """
    _, candidate, number = place_of(run)
    return pruners[candidate].reason_to_stop(number, trials.of(candidate))

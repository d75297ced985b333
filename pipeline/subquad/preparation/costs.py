"""What a study's experiments cost, each made once, as most runs differ in none of it: data sets,
steps, counted FLOPs, parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from subquad.cost import Cost
from subquad.data import Dataset, DataSpec
from subquad.engine.parts import build_dataset, build_model, build_task, make_plan, training_cost
from subquad.experiment import Run

Made = TypeVar("Made")
MODEL = {"dataset", "task", "backbone", "mixer", "mixers"}
"""Parts of an experiment that decide its model; so do the settings of training in `_WEIGHTS`."""
_WEIGHTS = {"precision", "bucket_batches"}
_STEPS = {"steps", "epochs", "batch_size", "bucket_batches", "seed"}


def settings_of(run: Run, parts: Iterable[str], train: Iterable[str] = ()) -> str:
    """Some parts of an experiment and settings of its training, as one text."""
    included: dict[str, Any] = dict.fromkeys(parts, True)
    included["train"] = set(train)
    return run.experiment.model_dump_json(include=included)


class StudyCosts:
    """What is known of the data and models of a study before it is trained."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        made = self._made
        if key not in made:
            made[key] = make()
        return made[key]

    def data(self, run: Run) -> tuple[Dataset, DataSpec]:
        """The experiment's data set, prepared, and its description."""

        def make() -> tuple[Dataset, DataSpec]:
            dataset = build_dataset(run)
            return dataset, dataset.describe()

        return self._once(("data", settings_of(run, {"dataset"})), make)

    def steps(self, run: Run) -> tuple[int, int]:
        """Steps of the experiment's whole run, and of an epoch."""

        def make() -> tuple[int, int]:
            dataset, _ = self.data(run)
            plan = make_plan(run.experiment, dataset)
            return plan.total_steps, plan.steps_per_epoch

        return self._once(("steps", settings_of(run, {"dataset"}, _STEPS)), make)

    def cost(self, run: Run) -> Cost:
        """Parameters, and FLOPs of a step.

        Raises:
            UserError: the model cannot be built with these parameters and data.
            Exception: whatever a plugin raised.
        """

        def make() -> Cost:
            _, spec = self.data(run)
            return training_cost(run, spec)

        return self._once(("cost", settings_of(run, MODEL, {*_WEIGHTS, "batch_size"})), make)

    def parameters(self, run: Run) -> int:
        """Trainable numbers of the model, without a pass through it.

        Raises:
            UserError: the model cannot be built with these parameters and data.
        """

        def make() -> int:
            _, spec = self.data(run)
            model = build_model(run, spec, build_task(run, spec).num_outputs)
            count = 0
            for weight in model.parameters():
                if weight.requires_grad:
                    count += weight.numel()
            return count

        return self._once(("parameters", settings_of(run, MODEL, _WEIGHTS)), make)

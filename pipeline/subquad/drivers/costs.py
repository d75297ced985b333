"""What a study's experiments cost, each made once, as most runs differ in none of it: data sets,
steps, counted FLOPs, parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from subquad.cost import Cost
from subquad.data import Dataset, DataSpec
from subquad.engine.parts import build_dataset, build_model, build_task, make_plan, training_cost
from subquad.experiment import Run

Made = TypeVar("Made")


class StudyCosts:
    """What is known of the data and models of a study before it is trained."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def data(self, run: Run) -> tuple[Dataset, DataSpec]:
        """The experiment's data set, prepared, and its description."""

        def make() -> tuple[Dataset, DataSpec]:
            dataset = build_dataset(run)
            return dataset, dataset.describe()

        return self._once(("data", run.experiment.dataset.model_dump_json()), make)

    def steps(self, run: Run) -> tuple[int, int]:
        """Steps of the experiment's whole run, and of an epoch."""

        def make() -> tuple[int, int]:
            plan = make_plan(run.experiment, self.data(run)[0])
            return plan.total_steps, plan.steps_per_epoch

        train = run.experiment.train
        own = (train.steps, train.epochs, train.batch_size, train.bucket_batches, train.seed)
        return self._once(("steps", run.experiment.dataset.model_dump_json(), own), make)

    def cost(self, run: Run) -> Cost:
        """Parameters, and FLOPs of a step.

        Raises:
            UserError: the model cannot be built with these parameters and data.
            Exception: whatever a plugin raised.
        """
        key = ("cost", _model_key(run), run.experiment.train.batch_size)
        return self._once(key, lambda: training_cost(run, self.data(run)[1]))

    def parameters(self, run: Run) -> int:
        """Trainable numbers of the model, without a pass through it.

        Raises:
            UserError: the model cannot be built with these parameters and data.
        """

        def make() -> int:
            spec = self.data(run)[1]
            model = build_model(run, spec, build_task(run, spec).num_outputs)
            return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)

        return self._once(("parameters", _model_key(run)), make)


def _model_key(run: Run) -> str:
    experiment = run.experiment
    train = run.experiment.train
    parts = (
        experiment.dataset,
        experiment.task,
        experiment.backbone,
        experiment.mixer,
        *experiment.mixers,
    )
    words = [part.model_dump_json() for part in parts]
    return " ".join([*words, train.precision, str(train.bucket_batches > 0)])

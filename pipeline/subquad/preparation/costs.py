"""What a study's experiments cost, each made once, as most runs differ in none of it: data sets,
steps, counted FLOPs, parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

from subquad.cost import Cost
from subquad.data import Dataset, DataSpec
from subquad.engine.inputs import inputs_of
from subquad.engine.model import build_model
from subquad.engine.parts import build_dataset, build_task, make_plan, training_cost
from subquad.experiment import Run
from subquad.nn import Task
from subquad.record.models import Input

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


def _once(parts: Iterable[str], train: Iterable[str] = ()) -> Callable[[Any], Any]:
    """What a method says of a run is made once for all that agree in these settings, see
    `settings_of`.
    """

    def decorate(method: Callable[[StudyCosts, Run], Made]) -> Callable[[StudyCosts, Run], Made]:
        @wraps(method)
        def kept(self: StudyCosts, run: Run) -> Made:
            key = (method.__name__, settings_of(run, parts, train))
            if key not in self._made:
                self._made[key] = method(self, run)
            return self._made[key]

        return kept

    return decorate


class StudyCosts:
    """What is known of the data and models of a study before it is trained."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    @_once({"dataset"})
    def data(self, run: Run) -> tuple[Dataset, DataSpec]:
        """The experiment's data set, prepared, and its description."""
        dataset = build_dataset(run)
        return dataset, dataset.describe()

    @_once({*MODEL, "protocol"})
    def inputs(self, run: Run) -> Mapping[str, Input]:
        """What the experiment reads, as it is now, weights to start from aside."""
        return inputs_of(run, self.data(run)[0])

    @_once({"dataset", "task"})
    def task(self, run: Run) -> Task:
        """The experiment's task, for its data."""
        return build_task(run, self.data(run)[1])

    @_once({"dataset"}, _STEPS)
    def steps(self, run: Run) -> tuple[int, int]:
        """Steps of the experiment's whole run, and of an epoch."""
        plan = make_plan(run.experiment, self.data(run)[0])
        return plan.total_steps, plan.steps_per_epoch

    @_once(MODEL, {*_WEIGHTS, "batch_size"})
    def cost(self, run: Run) -> Cost:
        """Parameters, and FLOPs of a step.

        Raises:
            UserError: the model cannot be built with these parameters and data.
            Exception: whatever a plugin raised.
        """
        return training_cost(run, self.data(run)[1])

    @_once(MODEL, _WEIGHTS)
    def parameters(self, run: Run) -> int:
        """Trainable numbers of the model, without a pass through it.

        Raises:
            UserError: the model cannot be built with these parameters and data.
        """
        model = build_model(run, self.data(run)[1], self.task(run).num_outputs)
        return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)

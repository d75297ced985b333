"""Data sets and counted costs of a search's experiments, each made once: most points differ in neither."""

from __future__ import annotations

from subquad.cost import Cost
from subquad.data import Dataset, DataSpec
from subquad.drivers.session import data_root
from subquad.engine.parts import build_dataset, build_model, build_task, training_cost
from subquad.engine.run import make_plan
from subquad.experiment import Checked


class Materials:
    """What fitting and estimating need of the data and models of a search."""

    def __init__(self) -> None:
        self._data: dict[str, tuple[Dataset, DataSpec]] = {}
        self._costs: dict[str, Cost] = {}
        self._parameters: dict[str, int] = {}
        self._steps: dict[str, tuple[int, int]] = {}

    def data(self, checked: Checked) -> tuple[Dataset, DataSpec]:
        """The experiment's data set, prepared, and its description."""
        key = checked.experiment.dataset.model_dump_json()
        if key not in self._data:
            dataset = build_dataset(checked, data_root())
            self._data[key] = dataset, dataset.describe()
        return self._data[key]

    def steps(self, checked: Checked) -> tuple[int, int]:
        """Steps of the experiment's whole run, and of an epoch."""
        experiment, train = checked.experiment, checked.experiment.train
        key = f"{experiment.dataset.model_dump_json()} {train.steps} {train.epochs} {train.batch_size} " + (
            f"{train.bucket_batches} {train.seed}"
        )
        if key not in self._steps:
            plan = make_plan(experiment, self.data(checked)[0])
            self._steps[key] = plan.total_steps, plan.steps_per_epoch
        return self._steps[key]

    def cost(self, checked: Checked) -> Cost:
        """Parameters, and FLOPs of a step.

        Raises:
            UserError: the model cannot be built with these parameters and data.
            Exception: whatever a plugin raised.
        """
        train = checked.experiment.train
        key = f"{_model_key(checked)} {train.batch_size}"
        if key not in self._costs:
            self._costs[key] = training_cost(checked, self.data(checked)[1])
        return self._costs[key]

    def parameters(self, checked: Checked) -> int:
        """Trainable numbers of the model, without a pass through it.

        Raises:
            UserError: the model cannot be built with these parameters and data.
        """
        key = _model_key(checked)
        if key not in self._parameters:
            spec = self.data(checked)[1]
            model = build_model(checked, spec, build_task(checked, spec))
            self._parameters[key] = sum(one.numel() for one in model.parameters() if one.requires_grad)
        return self._parameters[key]


def _model_key(checked: Checked) -> str:
    experiment, train = checked.experiment, checked.experiment.train
    parts = (experiment.dataset, experiment.task, experiment.backbone, experiment.mixer)
    return " ".join([*(one.model_dump_json() for one in parts), train.precision, str(train.bucket_batches > 0)])

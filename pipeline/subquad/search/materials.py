"""Data sets and counted costs of a search's experiments, each made once: most points differ in neither."""

from __future__ import annotations

from subquad.cost import Cost
from subquad.data import Dataset, DataSpec
from subquad.engine.parts import build_dataset, build_model, build_task, make_plan, training_cost
from subquad.experiment import Run


class Materials:
    """What fitting and estimating need of the data and models of a search."""

    def __init__(self) -> None:
        self._data: dict[str, tuple[Dataset, DataSpec]] = {}
        self._costs: dict[str, Cost] = {}
        self._parameters: dict[str, int] = {}
        self._steps: dict[str, tuple[int, int]] = {}

    def data(self, run: Run) -> tuple[Dataset, DataSpec]:
        """The experiment's data set, prepared, and its description."""
        key = run.experiment.dataset.model_dump_json()
        if key not in self._data:
            dataset = build_dataset(run)
            self._data[key] = dataset, dataset.describe()
        return self._data[key]

    def steps(self, run: Run) -> tuple[int, int]:
        """Steps of the experiment's whole run, and of an epoch."""
        experiment, train = run.experiment, run.experiment.train
        key = f"{experiment.dataset.model_dump_json()} {train.steps} {train.epochs} {train.batch_size} " + (
            f"{train.bucket_batches} {train.seed}"
        )
        if key not in self._steps:
            plan = make_plan(experiment, self.data(run)[0])
            self._steps[key] = plan.total_steps, plan.steps_per_epoch
        return self._steps[key]

    def cost(self, run: Run) -> Cost:
        """Parameters, and FLOPs of a step.

        Raises:
            UserError: the model cannot be built with these parameters and data.
            Exception: whatever a plugin raised.
        """
        train = run.experiment.train
        key = f"{_model_key(run)} {train.batch_size}"
        if key not in self._costs:
            self._costs[key] = training_cost(run, self.data(run)[1])
        return self._costs[key]

    def parameters(self, run: Run) -> int:
        """Trainable numbers of the model, without a pass through it.

        Raises:
            UserError: the model cannot be built with these parameters and data.
        """
        key = _model_key(run)
        if key not in self._parameters:
            spec = self.data(run)[1]
            model = build_model(run, spec, build_task(run, spec))
            self._parameters[key] = sum(one.numel() for one in model.parameters() if one.requires_grad)
        return self._parameters[key]


def _model_key(run: Run) -> str:
    experiment, train = run.experiment, run.experiment.train
    parts = (experiment.dataset, experiment.task, experiment.backbone, experiment.mixer)
    return " ".join([*(one.model_dump_json() for one in parts), train.precision, str(train.bucket_batches > 0)])

"""A task of another kind for data sets with classes: the class number, as a number."""

import torch

from subquad.nn import Task
from subquad.plugin import Config, TaskPlugin, param


class Settings(Config):
    scale: float = param(1.0, meaning="what class numbers are divided by", gt=0)


class Regression(Task):
    """Squared error of one output against the class number."""

    num_outputs = 1

    def loss(self, outputs, batch):
        errors = outputs[:, 0] - batch["labels"] / self.config.scale
        return errors.square().sum(), torch.tensor(float(len(errors)), device=errors.device)

    def sums(self, outputs, batch):
        loss, count = self.loss(outputs, batch)
        return {"loss": loss.double(), "count": count.double()}

    def metrics(self, sums):
        return {"rmse": float(sums["loss"] / sums["count"]) ** 0.5}

    def per_sample(self, outputs, batch):
        return {"predicted": outputs[:, 0], "label": batch["labels"]}


PLUGIN = TaskPlugin(
    config=Settings, build=Regression, summary="regression", targets=("class",), metric="rmse", mode="min"
)

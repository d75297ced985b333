"""Regression: one number or several for each sample. Light half."""

from __future__ import annotations

from typing import Literal

from subquad.plugin import Config as PluginConfig
from subquad.plugin import Metric, TaskPlugin, param


class Config(PluginConfig):
    """Parameters of regression."""

    loss: Literal["mse", "mae", "huber"] = param(
        "mse",
        meaning="of labels in TRAIN's deviations: squared error, absolute error, or squared up to "
        "one deviation and absolute beyond (half of the square, as Huber has it)",
        search=["mse", "mae", "huber"],
    )


PLUGIN = TaskPlugin(
    config=Config,
    build="subquad_plugins.regression.task:Regression",
    summary="squared, absolute or Huber loss; MAE, RMSE and R2 in the units of the labels",
    paper="Huber, 1964, Robust estimation of a location parameter (the Huber loss)",
    targets=("values",),
    reports={
        "mae": Metric(label="MAE", mode="min"),
        "rmse": Metric(label="RMSE", mode="min"),
        "r2": Metric(label="R²"),
        "loss": Metric(mode="min", in_tables=False),
    },
    selects="loss",
)

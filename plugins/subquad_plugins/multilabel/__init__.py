"""Multi-label classification: a sample is of any number of classes. Light half."""

from __future__ import annotations

from subquad.plugin import Config as PluginConfig
from subquad.plugin import Metric, Range, TaskPlugin, param


class Config(PluginConfig):
    """Parameters of multi-label classification."""

    positive_weight: float = param(
        1.0,
        meaning="weight in the loss of a class that a sample "
        "has, against 1 for one that it has not",
        gt=0,
        le=1e6,
        search=Range(0.1, 100.0, log=True),
    )


PLUGIN = TaskPlugin(
    config=Config,
    build="subquad_plugins.multilabel.task:Multilabel",
    summary="binary cross entropy of each class; mean average precision, F1 and exact match",
    targets=("multilabel",),
    reports={
        "mean_average_precision": Metric(label="mAP", unit="%"),
        "macro_f1": Metric(label="macro-F1", unit="%"),
        "micro_f1": Metric(label="micro-F1", unit="%"),
        "exact_match": Metric(label="exact match", unit="%"),
        "loss": Metric(mode="min", in_tables=False),
    },
    selects="loss",
)

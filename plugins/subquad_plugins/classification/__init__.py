"""Classification of sequences, of pairs of them, or of positions where the data set labels
those. Light half.
"""

from __future__ import annotations

from subquad.plugin import Config as PluginConfig
from subquad.plugin import Metric, TaskPlugin, param


class Config(PluginConfig):
    """Parameters of classification."""

    label_smoothing: float = param(
        0.0,
        meaning="share of the target spread evenly over all classes; the reported loss includes it",
        ge=0,
        lt=1,
    )


PLUGIN = TaskPlugin(
    config=Config,
    build="subquad_plugins.classification.task:Classification",
    summary="cross entropy; accuracy, macro F1, loss and, of more than 20 classes, top-5 accuracy",
    targets=("class", "positions", "pair"),
    reports={
        "accuracy": Metric(unit="%", answers=True),
        "macro_f1": Metric(label="macro-F1", unit="%"),
        "top5_accuracy": Metric(label="top-5 accuracy", unit="%", answers=True),
        "loss": Metric(mode="min", in_tables=False),
    },
)

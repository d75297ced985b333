"""A task with a metric of its own: a fraction in percent, of which less is better, under a label
of its own.
"""

from subquad.plugin import Config, Metric, TaskPlugin
from subquad_plugins.classification.task import Classification


class Labels(Config):
    label_smoothing: float = 0.0


class Errors(Classification):
    def metrics(self, sums):
        found = super().metrics(sums)
        return {"top1_error": 1.0 - found["accuracy"], "loss": found["loss"]}

    def rescore(self, kept):
        return {"top1_error": 1.0 - super().rescore(kept)["accuracy"]}


PLUGIN = TaskPlugin(
    config=Labels,
    build=Errors,
    summary="share of wrong answers",
    targets=("class",),
    reports={"top1_error": Metric(label="top-1 error", mode="min", unit="%", digits=1)},
)

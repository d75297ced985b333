"""Classification of pairs of sequences: what classification does, behind a backbone that reads two. Light half."""

from __future__ import annotations

from subquad.plugin import TaskPlugin
from subquad_plugins.classification import Config

PLUGIN = TaskPlugin(
    config=Config,
    build="subquad_plugins.pair_classification.task:PairClassification",
    summary="cross entropy over pairs of sequences; accuracy, macro F1 and loss",
    targets=("pair",),
    metric="accuracy",
)

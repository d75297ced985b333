"""Classification of pairs of sequences: another name in messages, nothing else."""

from __future__ import annotations

from typing import ClassVar

from subquad_plugins.classification.task import Classification


class PairClassification(Classification):
    """`Classification` of what a backbone says about two sequences."""

    name: ClassVar[str] = "pair-classification"

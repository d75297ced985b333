"""Binary cross entropy of classes that do not exclude each other.

F1 and exact match come from counts that add up exactly over batches and ranks. Average precision
needs the order of all samples, so the final evaluation alone has it.

Letters: B batch, N samples, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.data import DataSpec
from subquad.errors import DataError
from subquad.nn import Backbone, Batch, Task
from subquad_plugins.multilabel import Config
from subquad_plugins.numerics.tensors import check_fit, wide


class Multilabel(Task):
    """Loss weight is the number of labels that are known. A class is named where its probability is
    above 0.5.

    Args:
        config: see `Config`.
        spec: of a data set with several labels a sample.

    Raises:
        DataError: it has none.
    """

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__(config, spec)
        self._positive = torch.tensor(config.positive_weight)
        if spec.target != "multilabel" or not spec.num_classes:
            raise DataError(
                f"task multilabel needs a data set of several labels, this one labels {spec.target}"
            )

    @property
    def num_outputs(self) -> int:
        return self.spec.num_classes

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        losses = self._losses(outputs, batch["labels"])
        return losses.sum(), torch.tensor(float(len(losses)), device=losses.device)

    def weight(self, batch: Batch) -> Tensor:
        return (~batch["labels"].isnan()).sum()

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`loss` () float64 and `known` (), its weight; and what `_counts` gives."""
        losses = self._losses(outputs, batch["labels"]).double()
        return {
            "loss": losses.sum(),
            "known": torch.tensor(len(losses), device=losses.device),
            **_counts(outputs, batch["labels"]),
        }

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """`micro_f1`, `macro_f1` and `exact_match` as shares in [0, 1], and the mean `loss`; NaN
        without labels.
        """
        return {**_scores(sums), "loss": float(sums["loss"]) / (int(sums["known"]) or math.nan)}

    def per_sample(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`logit` and `label`, (B, C) float32 each."""
        return {"logit": outputs.float(), "label": batch["labels"].float()}

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """Also `mean_average_precision`, over classes that some sample has."""
        logit = kept["logit"]
        label = kept["label"]
        if (
            not ((label == 0) | (label == 1) | label.isnan()).all()
            or logit.shape != label.shape
            or logit.isnan().any()
        ):
            raise ValueError("the answers are no numbers, or the labels not 0, 1 or unknown")
        precisions = [average_precision(*column) for column in zip(logit.T, label.T, strict=True)]
        return {
            "mean_average_precision": float(
                torch.tensor(precisions, dtype=torch.float64).nanmean()
            ),
            **_scores(_counts(logit, label)),
        }

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`probabilities`, (B, C): written by class."""
        return {"probabilities": wide(model(batch).outputs).sigmoid()}

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of each label that is known, in fp32 at least.

        Raises:
            PluginError: the outputs are not of what the data set labels.
        """
        check_fit("multilabel", outputs, labels)
        known = ~labels.isnan()
        outputs = wide(outputs)
        wanted = labels[known].to(outputs.dtype)
        positive = self._positive.to(outputs)
        return F.binary_cross_entropy_with_logits(
            outputs[known], wanted, reduction="none", pos_weight=positive
        )


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """Mean precision at each sample that is of the class, in the order of scores; equal scores
    count as one step.

    Args:
        scores: (N,).
        labels: (N,), 1 or 0; NaN where not known, which takes no part.

    Returns:
        in [0, 1]; NaN where no sample is of the class.

    Reference: Manning et al., 2008, Introduction to information retrieval, section 8.4.
    """
    known = ~labels.isnan()
    order = scores[known].argsort(descending=True, stable=True)
    ranked = scores[known][order]
    hits = labels[known][order].double().cumsum(0)
    last = torch.ones(len(ranked), dtype=torch.bool)  # the last of each run of equal scores
    last[:-1] = ranked[1:] != ranked[:-1]
    named = torch.arange(1, len(ranked) + 1, dtype=torch.float64)[last]
    gained = hits[last].diff(prepend=torch.zeros(1, dtype=torch.float64))
    if len(hits) and hits[-1]:
        return float((hits[last] / named * gained).sum() / hits[-1])
    return math.nan


def _counts(outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """int64: `right`, `named` and `true`, (C,) each, of known labels; and `exact` of `samples`
    with any label.
    """
    known = ~labels.isnan()
    chosen = outputs > 0
    true = labels == 1
    labelled = known.any(1)
    wrong = (known & (chosen != true)).any(1)
    return {
        "right": (chosen & true).sum(0),
        "named": (chosen & known).sum(0),
        "true": true.sum(0),
        "exact": (labelled & ~wrong).sum(),
        "samples": labelled.sum(),
    }


def _scores(counts: Mapping[str, Tensor]) -> dict[str, float]:
    """Macro F1 is the mean over classes that occur among labels or answers; F1 is 0 where
    nothing occurs.
    """
    right = counts["right"].double()
    either = (counts["named"] + counts["true"]).double()
    occurs = either > 0
    return {
        "micro_f1": float(2 * right.sum() / either.sum().clamp(min=1)),
        "macro_f1": float((2 * right / either)[occurs].mean()) if occurs.any() else 0.0,
        "exact_match": float(counts["exact"]) / (int(counts["samples"]) or math.nan),
    }

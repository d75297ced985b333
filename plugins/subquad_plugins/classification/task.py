"""Cross entropy of sequences or pairs; metrics from counts by class, which add up exactly.

Of a data set that labels positions, every labelled position of a batch is a case of its own; of
others every sample that has a label.

Letters: B batch, L length, N cases, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.data import NO_LABEL, DataSpec
from subquad.errors import DataError
from subquad.nn import Backbone, Batch, Task
from subquad_plugins.classification import Config
from subquad_plugins.numerics.tensors import check_fit, wide

_FEW_CLASSES = 20
"""With more of them the label may also be looked for among the five likeliest classes."""


class Classification(Task):
    """Loss weight is the number of cases.

    Args:
        config: see `Config`.
        spec: of a data set with at least two classes.

    Raises:
        DataError: it has fewer.
    """

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__(config, spec)
        self.label_smoothing = config.label_smoothing
        if spec.num_classes < 2:
            raise DataError(
                "task classification needs a data set with at least 2 classes, "
                f"this one has {spec.num_classes}"
            )

    @property
    def num_outputs(self) -> int:
        return self.spec.num_classes

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of images that were mixed (`other_labels` and `other_share`, (B,) each) the mean over
        both labels.
        """
        labels = batch["labels"]
        losses = self._losses(outputs, labels)
        if "other_labels" in batch:
            share = batch["other_share"]
            losses = (1 - share) * losses + share * self._losses(outputs, batch["other_labels"])
        return losses.sum(), self.weight(batch).to(losses.dtype)

    def weight(self, batch: Batch) -> Tensor:
        return (batch["labels"] != NO_LABEL).sum()

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`loss` () float64, and what `_counts` gives."""
        losses = self._losses(outputs, batch["labels"])
        return {"loss": losses.double().sum(), **self._counts(self.per_sample(outputs, batch))}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """`accuracy`, `macro_f1` and, of many classes, `top5_accuracy`, shares in [0, 1]; mean
        `loss`.

        NaN where there was no case. Macro F1 is the mean over classes that occur among labels or
        predictions.
        """
        count = int(sums["true"].sum()) or math.nan
        return {**self._scores(sums), "loss": float(sums["loss"]) / count}

    def per_sample(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`predicted` and `label`, (B,) int64 each; of positions (B, L), `NO_LABEL` without a
        label.

        Of many classes also `top5_accuracy`, bool: whether the label is among the five likeliest.
        """
        labels = batch["labels"]
        nothing = labels == NO_LABEL
        likeliest = outputs.argmax(-1)
        rows = {"predicted": likeliest.masked_fill(nothing, NO_LABEL), "label": labels}
        if self._has_top5:
            among_five = _rank(outputs, labels) < 5
            among_five |= likeliest == labels  # where outputs are NaN `argmax` may say so alone
            rows["top5_accuracy"] = among_five & ~nothing
        return rows

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """All but the loss."""
        labels = kept["label"]
        predicted = kept["predicted"]
        for named in (labels, predicted):
            cases = named[labels != NO_LABEL]
            if not bool(((cases >= 0) & (cases < self.spec.num_classes)).all()):
                raise ValueError(f"the answers are none of {self.spec.num_classes} classes")
        right = (predicted == labels) & (labels != NO_LABEL)
        if self._has_top5 and bool((right & ~kept["top5_accuracy"]).any()):
            raise ValueError("the likeliest class is not among the five likeliest")
        return self._scores(self._counts(kept))

    @property
    def _has_top5(self) -> bool:
        return self.spec.num_classes > _FEW_CLASSES

    def _counts(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """int64, of what `per_sample` gives: `right`, `named` and `true`, (C,) each.

        Of many classes also `top5` ().
        """
        labelled = rows["label"] != NO_LABEL
        labels = rows["label"][labelled]
        predicted = rows["predicted"][labelled]
        classes = self.spec.num_classes
        counts = {
            "right": torch.bincount(labels[labels == predicted], minlength=classes),
            "named": torch.bincount(predicted, minlength=classes),
            "true": torch.bincount(labels, minlength=classes),
        }
        if self._has_top5:
            counts["top5"] = rows["top5_accuracy"][labelled].sum()
        return counts

    def _scores(self, counts: Mapping[str, Tensor]) -> dict[str, float]:
        """From what `_counts` gives, in float64."""
        right = counts["right"].double()
        true = counts["true"].double()
        either = true + counts["named"].double()
        count = float(true.sum()) or math.nan
        f1 = 2 * right / either
        metrics = {"accuracy": float(right.sum()) / count, "macro_f1": float(f1[either > 0].mean())}
        if self._has_top5:
            metrics["top5_accuracy"] = float(counts["top5"]) / count
        return metrics

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`class`, the likeliest, (B,) int64, and `probabilities` (B, C); of positions (B, L) and
        (B, L, C).

        A position that is padding has the class `NO_LABEL`.
        """
        outputs = wide(model(batch).outputs)
        chosen = outputs.argmax(-1)
        if self.spec.target == "positions":
            chosen = chosen.masked_fill(~batch["keep"], NO_LABEL)
        return {"class": chosen, "probabilities": outputs.softmax(-1)}

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of each case, in fp32 at least; 0 where there is no label, so that nothing waits to learn
        how many there are.

        Raises:
            PluginError: the outputs are not of what the data set labels.
        """
        check_fit("classification", outputs, labels, classes=True)
        options: dict[str, Any] = {
            "ignore_index": NO_LABEL,
            "label_smoothing": self.label_smoothing,
        }
        losses = F.cross_entropy(
            wide(outputs).flatten(0, -2), labels.flatten(), reduction="none", **options
        )
        return losses.view(labels.shape)


def _rank(outputs: Tensor, labels: Tensor) -> Tensor:
    """How many classes are likelier than the label, of equal ones the first; (..., C) to (...).

    A label whose output is NaN is behind all.
    """
    wide_outputs = wide(outputs)
    place = labels.clamp_min(0)[..., None]
    own = wide_outputs.gather(-1, place)
    later = torch.arange(outputs.shape[-1], device=outputs.device) > place
    behind = (wide_outputs < own) | ((wide_outputs == own) & later)
    return outputs.shape[-1] - 1 - behind.sum(-1)

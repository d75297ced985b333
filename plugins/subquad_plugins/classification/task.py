"""Cross entropy of sequences or pairs; metrics from a confusion matrix that adds up exactly over batches and ranks.

Of a data set that labels positions, every labelled position of a batch is a case of its own; of others every sample
that has a label.

Letters: B batch, L length, C classes.
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
                f"task classification needs a data set with at least 2 classes, this one has {spec.num_classes}"
            )

    @property
    def num_outputs(self) -> int:
        return self.spec.num_classes

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of images that were mixed (`other_labels` and `other_share`, (B,) each) the mean over both labels."""
        labels = batch["labels"]
        losses = self._losses(outputs, labels)
        if "other_labels" in batch:
            share = batch["other_share"]
            losses = (1 - share) * losses + share * self._losses(outputs, batch["other_labels"])
        return losses.sum(), self.weight(batch).to(losses.dtype)

    def weight(self, batch: Batch) -> Tensor:
        return (batch["labels"] != NO_LABEL).sum()

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`loss` () float64 and `confusion` (C, C) int64, rows the true class, columns the predicted one."""
        labels = batch["labels"]
        losses, labelled = self._losses(outputs, labels), labels != NO_LABEL
        confusion = self._confusion(labels[labelled], outputs.argmax(-1)[labelled])
        return {"loss": losses.double().sum(), "confusion": confusion}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """`accuracy` and `macro_f1` as shares in [0, 1], and the mean `loss`; NaN where there was no case.

        Macro F1 is the mean over classes that occur among labels or predictions.
        """
        confusion = sums["confusion"].double()
        count = float(confusion.sum())
        if not count:
            return dict.fromkeys(("accuracy", "macro_f1", "loss"), math.nan)
        true, named = confusion.sum(1), confusion.sum(0)
        f1 = 2 * confusion.diagonal() / (true + named)
        return {
            "accuracy": float(confusion.trace()) / count,
            "macro_f1": float(f1[true + named > 0].mean()),
            "loss": float(sums["loss"]) / count,
        }

    def per_sample(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`predicted` and `label`, (B,) int64 each; of positions (B, L), `NO_LABEL` where there is no label."""
        labels = batch["labels"]
        return {"predicted": outputs.argmax(-1).masked_fill(labels == NO_LABEL, NO_LABEL), "label": labels}

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """`accuracy` and `macro_f1`."""
        labels, predicted = kept["label"], kept["predicted"]
        cases = [one[labels != NO_LABEL] for one in (labels, predicted)]
        if not all(bool(((one >= 0) & (one < self.spec.num_classes)).all()) for one in cases):
            raise ValueError(f"the answers are none of {self.spec.num_classes} classes")
        found = self.metrics({"confusion": self._confusion(*cases), "loss": torch.tensor(math.nan)})
        return {name: found[name] for name in ("accuracy", "macro_f1")}

    def _confusion(self, labels: Tensor, predicted: Tensor) -> Tensor:
        classes = self.spec.num_classes
        return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`class`, the likeliest, (B,) int64, and `probabilities` (B, C); of positions (B, L) and (B, L, C).

        A position that is padding has the class `NO_LABEL`.
        """
        outputs = wide(model(batch).outputs)
        chosen = outputs.argmax(-1)
        if self.spec.target == "positions":
            chosen = chosen.masked_fill(~batch["keep"], NO_LABEL)
        return {"class": chosen, "probabilities": outputs.softmax(-1)}

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of each case, in fp32 at least; 0 where there is no label, so that nothing waits to learn how many there are.

        Raises:
            PluginError: the outputs are not of what the data set labels.
        """
        check_fit("classification", outputs, labels, classes=True)
        options: dict[str, Any] = {"ignore_index": NO_LABEL, "label_smoothing": self.label_smoothing}
        losses = F.cross_entropy(wide(outputs).flatten(0, -2), labels.flatten(), reduction="none", **options)
        return losses.view(labels.shape)

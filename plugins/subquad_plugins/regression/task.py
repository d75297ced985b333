"""Errors of predicted numbers, from sums that add up exactly over batches and ranks.

Letters: B batch, V values.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.data import DataSpec
from subquad.errors import DataError
from subquad.nn import Backbone, Batch, Task
from subquad_plugins.numerics.tensors import check_fit, wide
from subquad_plugins.regression import Config

_LOSSES = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


class Regression(Task):
    """The model gives numbers with TRAIN's mean as 0 and its deviation as 1. Loss weight is the
    number of labels.

    Args:
        config: see `Config`.
        spec: of a data set with values.

    Raises:
        DataError: it has none.
    """

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__(config, spec)
        self._loss = _LOSSES[config.loss]
        if spec.target != "values" or not spec.values:
            raise DataError(
                f"task regression needs a data set of values, this one labels {spec.target}"
            )
        self._scale = torch.tensor(list(spec.values.values()), dtype=torch.float64)

    @property
    def num_outputs(self) -> int:
        return len(self.spec.values)

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        losses = self._losses(outputs, batch["labels"])
        return losses.sum(), torch.tensor(float(len(losses)), device=losses.device)

    def weight(self, batch: Batch) -> Tensor:
        return (~batch["labels"].isnan()).sum()

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`loss` () and, (V,) each, what `_moments` gives; float64."""
        loss = self._losses(outputs, batch["labels"]).double().sum()
        return {"loss": loss, **self._moments(self._predicted(outputs), batch["labels"].double())}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """`mae`, `rmse` and `r2`, means over values that have labels, and `loss`, the mean over all
        labels.

        `r2` is the mean over values whose labels differ; NaN where there are none.
        """
        return {**_scores(sums), "loss": float(sums["loss"] / sums["count"].sum())}

    def per_sample(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`predicted` and `label`, (B, V), and `mae` (B,), the mean over labelled values;
        float64.
        """
        predicted = self._predicted(outputs)
        label = batch["labels"].double()
        return {"predicted": predicted, "label": label, "mae": (predicted - label).abs().nanmean(1)}

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """`mae`, `rmse` and `r2`."""
        predicted = kept["predicted"]
        label = kept["label"]
        if (
            predicted.shape != label.shape
            or label.shape[1:] != (self.num_outputs,)
            or not predicted.isfinite().all()
        ):
            raise ValueError(f"the answers are no {self.num_outputs} numbers for each sample")
        return _scores(self._moments(predicted, label))

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """Each value by its name, (B,)."""
        return dict(
            zip(self.spec.values, self._predicted(model(batch).outputs).unbind(1), strict=True)
        )

    def _moments(self, predicted: Tensor, label: Tensor) -> dict[str, Tensor]:
        """(V,) each: how many labels; sums of errors, absolute and squared, and of labels less
        TRAIN's mean.
        """
        known = ~label.isnan()
        mean, _ = self._scaling(label)
        error = (predicted - label).where(known, 0.0)
        centred = (label - mean).where(known, 0.0)
        moments = {
            "absolute": error.abs(),
            "squared": error**2,
            "labels": centred,
            "labels_squared": centred**2,
        }
        return {
            "count": known.double().sum(0),
            **{name: moment.sum(0) for name, moment in moments.items()},
        }

    def _predicted(self, outputs: Tensor) -> Tensor:
        """(B, V) float64, in the units of the labels."""
        mean, deviation = self._scaling(outputs)
        return outputs.double() * deviation + mean

    def _scaling(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """TRAIN's mean and deviation of each value, (V,) float64."""
        mean, deviation = self._scale.to(like.device).unbind(1)
        return mean, deviation

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of each label that is there, in fp32 at least.

        Raises:
            PluginError: the outputs are not of what the data set labels.
        """
        check_fit("regression", outputs, labels)
        mean, deviation = self._scaling(labels)
        outputs = wide(outputs)
        known = ~labels.isnan()
        wanted = ((labels.double() - mean) / deviation).to(outputs.dtype)
        return self._loss(outputs[known], wanted[known], reduction="none")


def _scores(moments: Mapping[str, Tensor]) -> dict[str, float]:
    count = moments["count"]
    # of equal labels rounding leaves a little
    known = count > 0
    alike = 1e-12 * moments["labels_squared"]
    spread = moments["labels_squared"] - moments["labels"] ** 2 / count
    explained = 1 - moments["squared"] / spread
    return {
        "mae": float((moments["absolute"] / count)[known].mean()),
        "rmse": float((moments["squared"] / count)[known].sqrt().mean()),
        "r2": float(explained[known & (spread > alike)].mean()),
    }

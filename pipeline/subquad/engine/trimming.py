"""Batches of like length are cut to their longest sample: where that may be, and how."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from subquad.data import Array, ArrayBatch, DataSpec, Split, sample_lengths
from subquad.errors import ConfigError, DataError
from subquad.nn import Backbone

LENGTH = "length"
"""The axis that is trimmed."""


def check_lengths(batches: int, spec: DataSpec, split: Split) -> None:
    """Refuse to trim a training split where that cannot work, or has no effect.

    Raises:
        ConfigError: its lengths are not known, or trimming has no effect on it.
    """
    start = f"train.bucket_batches: got {batches}, "
    if spec.equal_length:
        raise ConfigError(f"{start}has no effect with this data set, whose sequences are equally long; use 0")
    if spec.target == "positions":
        raise ConfigError(f"{start}trims positions, and this data set labels them; use 0")
    lengths = sample_lengths(split)
    if lengths is None:
        raise ConfigError(f"{start}needs the samples' lengths, which this data set does not give; use 0")
    if (lengths >= spec.max_len).all():
        raise ConfigError(
            f"{start}has no effect with this data set, whose training sequences all have {spec.max_len} tokens; use 0"
        )


def check_extra_losses(model: Backbone, batches: int) -> None:
    """Refuse mixers whose extra losses are trained on: nothing says that these leave padding out.

    Raises:
        ConfigError: names the losses.
    """
    weighed = {
        name for module in model.modules() for name, weight in getattr(module, "loss_weights", {}).items() if weight
    }
    if weighed:
        raise ConfigError(
            f"train.bucket_batches: got {batches}, trims padding, which the mixer's extra loss may count "
            f"({', '.join(sorted(weighed))}); use 0, or a weight of 0 for the loss, in mixer.params"
        )


def trimmed(batch: ArrayBatch, length: int, arrays: Mapping[str, Array]) -> ArrayBatch:
    """A batch without what lies from `length` on along the axis "length".

    Args:
        batch: every array of it that has the axis is cut.
        length: places that are kept.
        arrays: the axes, `DataSpec.arrays`.

    Raises:
        DataError: a bool array says that something real lies beyond.
    """
    cut = {}
    for name, values in batch.items():
        axes = arrays[name].axes if name in arrays else ()
        if LENGTH in axes:
            before = (slice(None),) * (1 + axes.index(LENGTH))
            if values.dtype == bool and values[(*before, slice(length, None))].any():
                raise DataError(f"the data set gives a length of {length}, but {name} has real tokens beyond it")
            values = np.ascontiguousarray(values[(*before, slice(length))])
        cut[name] = values
    return cut

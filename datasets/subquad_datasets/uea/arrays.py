"""From series to padded arrays. N series, C channels, L padded length, T all time steps of all
series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subquad_datasets.uea.ts import Cases


@dataclass(frozen=True)
class Normalizer:
    """z-score per channel.

    Attributes:
        mean: (C,) float64.
        std: (C,) float64, what is divided by.
        constant: channels, from 0, that never change; they become 0 instead of being divided by
            almost nothing.
    """

    mean: np.ndarray
    std: np.ndarray
    constant: tuple[int, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """(T, C) to (T, C)."""
        return (values - self.mean) / self.std

    @property
    def notes(self) -> list[str]:
        """What `data show` says of it: of many channels that never change the first ones."""
        if not self.constant:
            return []
        first = ", ".join(str(channel + 1) for channel in self.constant[:10])
        if len(self.constant) > 10:
            first += f", ... ({len(self.constant)} of {len(self.mean)})"
        return [f"constant in TRAIN, set to 0: channel {first}"]


def fit_normalizer(values: np.ndarray) -> Normalizer:
    """Statistics over all time steps at true lengths, so that a long series counts more than a
    short one.

    The standard deviation has N - 1 in its denominator and float64's epsilon added, as in the
    loader that the published UEA rows were made with.

    Args:
        values: (T, C) float64.
    """
    # an overflow is reported by the caller, in words
    with np.errstate(over="ignore", invalid="ignore"):
        mean = values.mean(axis=0)
        std = values.std(axis=0, ddof=min(1, len(values) - 1)) + np.finfo(np.float64).eps
    constant = values.min(axis=0) == values.max(axis=0)
    return Normalizer(
        mean=np.where(constant, values[0], mean),
        std=np.where(constant, 1.0, std),
        constant=tuple(np.flatnonzero(constant).tolist()),
    )


def no_normalizer(channels: int) -> Normalizer:
    """Leaves values as they are."""
    return Normalizer(np.zeros(channels), np.ones(channels), ())


def pad(
    values: np.ndarray, lengths: np.ndarray, max_len: int, dtype: type = np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Zero padding after the last step; steps beyond `max_len` are dropped.

    Args:
        values: (T, C), the series one after the other.
        lengths: (N,), summing to T.

    Returns:
        (N, max_len, C) of `dtype`, and (N, max_len) bool, True = real step.
    """
    keep = np.arange(max_len) < lengths[:, None]
    starts = np.cumsum(lengths) - lengths
    step = np.arange(len(values)) - np.repeat(starts, lengths)
    padded = np.zeros((len(lengths), max_len, values.shape[1]), dtype=dtype)
    with np.errstate(over="ignore"):  # as above
        padded[keep] = values[step < max_len]
    return padded, keep


def to_arrays(cases: Cases, normalizer: Normalizer, max_len: int) -> dict[str, np.ndarray]:
    """`inputs` (N, L, C) float32, `keep` (N, L) bool, `labels` (N,) int64."""
    with np.errstate(over="ignore", invalid="ignore"):  # as above
        inputs, keep = pad(normalizer(cases.values), cases.lengths, max_len)
    return {"inputs": inputs, "keep": keep, "labels": cases.labels}

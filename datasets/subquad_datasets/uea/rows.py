"""Rows of a .ts file: `v,v,...:v,v,...:label`, one series a row, channels between colons.

A row is parsed in one go; whatever is odd about it is then read again value by value, to name the
value that is at fault. C channels, L steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from subquad.data import NO_LABEL
from subquad.suggest import did_you_mean
from subquad_datasets.text.lines import fault, plain_number
from subquad_datasets.uea.header import Header

Missing = Literal["refuse", "interpolate"]

GAP_REMEDY = (
    "set dataset.params.missing=interpolate to fill it in; where it is padding, all channels must "
    "be missing up to the end of the series"
)
NO_VALUE = "the series has no value"


@dataclass(frozen=True, slots=True)
class Row:
    """One series.

    Attributes:
        values: (C, L) float64, finite.
        label: index of its class, `NO_LABEL` where there are none.
        filled: values that were interpolated.
        ended: steps without a value after its end: see `true_lengths`.
    """

    values: np.ndarray
    label: int
    filled: int
    ended: int


@dataclass(frozen=True)
class Place:
    """Where a row stands, for messages."""

    path: Path
    line: int

    def fault(self, text: str) -> Exception:
        return fault(self.path, self.line, text)


def parse_row(place: Place, line: str, header: Header, missing: Missing) -> Row:
    """Check and read one row.

    Raises:
        DataError: a wrong number of channels or steps, an unknown class, a value that is no finite
            number, or no value at all.
    """
    if line.startswith("@"):
        raise place.fault(f"{line.split()[0][:40]} after @data; tags stand before it")
    if header.class_names:
        *channels, label = line.split(":")
    else:
        *channels, label = (*line.split(":"), "")
    if not channels:
        raise place.fault(
            "a row must be channels and a class, with colons between them; is it cut off?"
        )
    if header.channels not in (None, len(channels)):
        raise place.fault(
            f"the row has {len(channels)} channels, not {header.channels}; is it cut off?"
        )
    if header.class_names:
        index = _label(place, label.strip(), header)
    else:
        index = NO_LABEL
    values = _parse_fast(channels)
    if values is None:
        values = _parse_slow(place, channels)
    if header.length not in (None, values.shape[1]):
        raise place.fault(
            f"the series has {values.shape[1]} steps, not {header.length} as @equalLength true asks"
        )
    steps = values.shape[1]
    length = int(true_lengths(values.T, np.array([steps]))[0])
    values = values[:, :length]
    if missing == "refuse":
        _refuse_gaps(place, channels, values)
    return _fill(place, values, index, steps - length)


def _label(place: Place, label: str, header: Header) -> int:
    known = header.labels
    if label.lower() not in known:
        if len(label) <= 40:
            shown = label
        else:
            shown = label[:37] + "..."
        allowed = ", ".join(header.class_names[:10]) + (", ..." if len(known) > 10 else "")
        raise place.fault(
            f"class {shown!r} is not in @classLabel "
            f"({allowed}){did_you_mean(shown, header.class_names)}"
        )
    return known[label.lower()]


def _parse_fast(channels: list[str]) -> np.ndarray | None:
    """(C, L) finite values, or None for a row that needs a closer look."""
    counts = {channel.count(",") + 1 for channel in channels}
    if len(counts) > 1:
        return None
    text = ",".join(channels)
    try:
        values = np.fromiter(map(float, plain_number(text).split(",")), np.float64)
    except ValueError:
        return None
    if not np.isfinite(values).all():
        return None
    return values.reshape(len(channels), -1)


def _parse_slow(place: Place, channels: list[str]) -> np.ndarray:
    """(C, L) values, NaN where one is missing."""
    table = [_channel(place, c, text) for c, text in enumerate(channels, start=1)]
    for c, values in enumerate(table, start=1):
        if len(values) != len(table[0]):
            raise place.fault(
                f"channel {c} has {len(values)} values, channel 1 has {len(table[0])}: "
                "channels of one series must be equally long, none is resampled"
            )
    return np.array(table, dtype=np.float64)


def _channel(place: Place, c: int, text: str) -> list[float]:
    if not text.strip():
        raise place.fault(f"channel {c} is empty")
    return [
        _value(place, f"channel {c}, value {i}", token.strip())
        for i, token in enumerate(text.split(","), 1)
    ]


def _value(place: Place, where: str, token: str) -> float:
    try:
        if token == "?":
            value = math.nan
        else:
            value = float(plain_number(token))
    except ValueError:
        raise place.fault(f"{where}: {token[:40]!r} is not a number") from None
    if math.isinf(value):
        raise place.fault(f"{where}: {token[:40]!r} is not finite")
    return value


def true_lengths(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where series end: after the last step at which any channel has a value. What follows is
    padding, as programs write it that keep series of several lengths in one array.

    Args:
        values: (T, C), NaN where one is missing; the series one after the other.
        lengths: (N,), 1 or more each, summing to T.

    Returns:
        (N,) int64 true lengths; 0 where a series has no value.
    """
    starts = np.cumsum(lengths) - lengths
    steps = np.where(np.isnan(values).all(axis=1), 0, np.arange(1, len(values) + 1))
    return np.maximum(np.maximum.reduceat(steps, starts) - starts, 0)


def _refuse_gaps(place: Place, channels: Sequence[str], values: np.ndarray) -> None:
    holes = np.argwhere(np.isnan(values))
    if len(holes):
        channel, step = map(int, holes[0])
        token = channels[channel].split(",")[step].strip()
        where = f"channel {channel + 1}, value {step + 1} is missing ({token!r})"
        raise place.fault(f"{where}; {GAP_REMEDY}")


def _fill(place: Place, values: np.ndarray, label: int, ended: int) -> Row:
    """Linear interpolation per channel; before the first and after the last known value, that
    value.
    """
    if not values.size:
        raise place.fault(NO_VALUE)
    holes = np.isnan(values)
    if not holes.any():
        return Row(values, label, 0, ended)
    if holes.all(axis=1).any():
        raise place.fault(
            f"channel {int(holes.all(axis=1).argmax()) + 1} has no value to interpolate from"
        )
    return Row(interpolated(values), label, int(holes.sum()), ended)


def interpolated(values: np.ndarray) -> np.ndarray:
    """(C, L) with each channel's NaN filled in; each has a value."""
    steps = np.arange(values.shape[1])
    holes = np.isnan(values)
    filled = [
        np.interp(steps, steps[~hole], row[~hole]) for row, hole in zip(values, holes, strict=True)
    ]
    return np.array(filled)

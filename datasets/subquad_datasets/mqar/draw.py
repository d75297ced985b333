"""Sequences of associative recall: pairs, then queries at places that follow a power law.

    k1 v1 k2 v2 .. kP vP  filler .. k5 filler .. k2  filler ..      labels every: as published
    filler ..  k1 v1 k2 v2 .. kP vP  filler .. k5 filler .. k2      labels last: ends with a query

Token ids, 0 being padding (of which there is none): 1 blank, 2 + key, 2 + K + value.
Letters: N sequences, L positions, P pairs, Q queries, S places for queries, K keys, V values.

Departure of `labels: last` from the published form (Arora et al., 2023, and the released
generator), in which the pairs always come first and whatever follows the last query stays: the
whole is moved to the right until the last query is the last token, which is where a classifier can
be made to look. Gaps between a pair and its query are as published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from subquad.data import NO_LABEL
from subquad_datasets.generated import random_stream
from subquad_datasets.mqar import Config
from subquad_datasets.recall.dataset import distinct_keys

BLANK = 1
FIRST_KEY = 2
_ROWS = 4096  # at a time, which bounds memory


@dataclass(frozen=True)
class Sequences:
    """Drawn sequences.

    Attributes:
        inputs: (N, L) int64 token ids.
        targets: (N, L) int64, at each query the value of its key, elsewhere `NO_LABEL`.
    """

    inputs: np.ndarray
    targets: np.ndarray


class Streams:
    """The random streams of one split: one for each thing drawn, so that more sequences only
    append rows.
    """

    def __init__(self, seed: int, split: int):
        numbers = (5 * split + part for part in range(5))
        self.keys, self.values, self.queried, self.places, self.filler = (
            random_stream(seed, n) for n in numbers
        )


def draw(config: Config, split: int, count: int) -> Sequences:
    """`count` sequences of a split's streams; a larger `count` only appends rows."""
    streams = Streams(config.seed, split)
    inputs = np.empty((count, config.length), dtype=np.int64)
    targets = np.empty_like(inputs)
    for rows in _slices(count):
        inputs[rows], targets[rows] = _draw_rows(config, streams, rows.stop - rows.start)
    return Sequences(inputs, targets)


def _draw_rows(config: Config, streams: Streams, count: int) -> tuple[np.ndarray, np.ndarray]:
    keys = distinct_keys(streams.keys, count, config.num_pairs, config.num_keys)
    values = distinct_keys(streams.values, count, config.num_pairs, config.num_values)
    queried = streams.queried.random((count, config.num_pairs)).argsort(axis=1)[:, : config.queries]
    places = draw_places(streams.places, count, config.places, config.queries, config.power_a)
    # Where what follows the pairs begins.
    if config.labels == "every":
        start = 2 * config.num_pairs
    else:
        start = config.length - 1 - 2 * places[:, -1:]
    pairs = start + np.arange(-2 * config.num_pairs, 0)
    queries = start + 2 * places
    inputs = _filler(config, streams.filler, keys)
    tokens = np.stack([FIRST_KEY + keys, FIRST_KEY + config.num_keys + values], axis=2).reshape(
        count, -1
    )
    np.put_along_axis(inputs, np.broadcast_to(pairs, tokens.shape), tokens, axis=1)
    np.put_along_axis(
        inputs, queries, FIRST_KEY + np.take_along_axis(keys, queried, axis=1), axis=1
    )
    targets = np.full(inputs.shape, NO_LABEL)
    np.put_along_axis(targets, queries, np.take_along_axis(values, queried, axis=1), axis=1)
    return inputs, targets


def draw_places(
    random: np.random.Generator, count: int, places: int, num_queries: int, power_a: float
) -> np.ndarray:
    """(N, Q) int64 in ascending order: Q of the S places, drawn one after the other in proportion
    to (s + 1)^(a - 1).

    Exponential races: the place whose clock rings first is drawn with probability in proportion to
    its rate, and the next one likewise among those left.
    """
    rates = np.arange(1, places + 1, dtype=np.float64) ** (power_a - 1)
    clocks = random.standard_exponential((count, places)) / rates
    return np.sort(clocks.argsort(axis=1)[:, :num_queries], axis=1)


def _filler(config: Config, random: np.random.Generator, keys: np.ndarray) -> np.ndarray:
    """(N, L) int64 to write pairs and queries into."""
    shape = (len(keys), config.length)
    if config.filler == "blank":
        return np.full(shape, BLANK, dtype=np.int64)
    drawn = random.integers(config.num_values + config.num_keys - config.num_pairs, size=shape)
    is_key = drawn >= config.num_values
    chosen = FIRST_KEY + config.num_keys + drawn
    chosen[is_key] = FIRST_KEY + absent_keys(
        keys, np.nonzero(is_key)[0], drawn[is_key] - config.num_values
    )
    return chosen


def absent_keys(keys: np.ndarray, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The `ranks`-th of the keys (N, P) that a row does *not* hold, for each of M `rows`: (M,).

    Below the key with rank r among the absent ones lie r absent keys and every held key k_j (j-th
    smallest, from 0) with k_j - j <= r. All rows are searched at once, each moved to numbers of its
    own.
    """
    gaps = np.sort(keys, axis=1) - np.arange(keys.shape[1])
    apart = int(gaps.max()) + int(ranks.max(initial=0)) + 1
    gaps += apart * np.arange(len(gaps))[:, None]
    below = np.searchsorted(gaps.ravel(), ranks + apart * rows, side="right") - keys.shape[1] * rows
    return ranks + below


def _slices(count: int) -> Iterator[slice]:
    for start in range(0, count, _ROWS):
        yield slice(start, min(start + _ROWS, count))

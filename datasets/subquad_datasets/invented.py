"""Documents of invented words, for data sets whose files are not there. Integers only, from words
of Philox.

Letters: D documents, W words of all of them, V words of the lexicon, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal

import numpy as np

Stream = Literal["train", "test", "validation", "lexicon"]

_STREAMS: dict[Stream, int] = {"train": 0, "test": 1, "validation": 2, "lexicon": 3}
_ONSETS = "bdfghjklmnprstvwz"
_VOWELS = "aeiou"
_CODAS = "nrsl"
_U = np.uint64


@dataclass(frozen=True)
class Lexicon:
    """Different words that can be spoken; a document is their letters, a blank between words and a
    stop at the end.

    Attributes:
        words: V of them, in the order of drawing.
    """

    words: tuple[bytes, ...]

    @cached_property
    def _letters(self) -> np.ndarray:
        return np.frombuffer(b"".join(word + b" " for word in self.words), dtype=np.uint8)

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([len(word) + 1 for word in self.words])

    def write(self, ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Documents as bytes.

        Args:
            ids: (W,) words of all documents, one document after the other.
            counts: (D,) words of each, at least 1.

        Returns:
            (bytes of all,) uint8 and (D,) int64 bytes of each.
        """
        lengths = self._lengths[ids]
        ends = np.cumsum(lengths)
        starts = np.cumsum(self._lengths) - self._lengths
        letters = self._letters[
            np.arange(ends[-1]) + np.repeat(starts[ids] - (ends - lengths), lengths)
        ]
        stops = ends[np.cumsum(counts) - 1]
        letters[stops - 1] = ord(".")
        return letters, np.diff(stops, prepend=0)


def source(seed: int, stream: Stream, block: int = 0) -> np.random.Philox:
    """Random 64-bit words (`random_raw`) of one block of a stream: the same on every machine,
    with every NumPy.
    """
    key = np.array([seed, _STREAMS[stream]], dtype=_U)
    return np.random.Philox(key=key, counter=np.array([0, block, 0, 0], dtype=_U))


def below(words: np.ndarray, count: int) -> np.ndarray:
    """(n,) int64, uniform in 0 .. count-1 to within 2^-32, from the upper half of each word; the
    lower half is free.
    """
    return (((words >> _U(32)) * _U(count)) >> _U(32)).astype(np.int64)


def balanced(words: np.ndarray, num_classes: int) -> np.ndarray:
    """(n,) int64 labels in random order, such that each C in a row are all C classes; n is a
    multiple of C.
    """
    return np.argsort(words.reshape(-1, num_classes), axis=1, kind="stable").reshape(-1)


def invent(seed: int, count: int) -> Lexicon:
    """A lexicon of `count` different words of one to three syllables."""
    words: dict[bytes, None] = {}
    drawn = source(seed, "lexicon")
    while len(words) < count:
        words.setdefault(_word(int(drawn.random_raw())))
    return Lexicon(tuple(words))


def zipf(count: int) -> np.ndarray:
    """Table to draw from uniformly: word k of `count` stands there in proportion to 1 / (k +
    10).
    """
    return np.repeat(np.arange(count), [100 * count // (rank + 10) for rank in range(count)])


def lognormal(least: int, median: float, sigma: float) -> np.ndarray:
    """Table to draw from uniformly: 1,024 quantiles of `least` and a log-normal number, rounded
    to integers.
    """
    normal = NormalDist(math.log(median), sigma)
    return np.array(
        [least + round(math.exp(normal.inv_cdf((place + 0.5) / 1024))) for place in range(1024)]
    )


def _word(bits: int) -> bytes:
    bits, syllables = divmod(bits, 3)
    word = ""
    for _ in range(syllables + 1):
        for letters in (_ONSETS, _VOWELS):
            bits, place = divmod(bits, len(letters))
            word += letters[place]
        bits, place = divmod(bits, 4 * len(_CODAS))
        word += _CODAS[place : place + 1]
    return word.encode()

"""The stand-in for reviews: does a text of invented words say more good than bad? Drawn in blocks.

Most words are neutral. One in eight is polar, a good or a bad word, and one of four negators
("not") right before a polar word turns it round; negators stand before neutral words too, so that
their number says nothing. The label is the sign of the sum: 1 where more is good. Letters: T texts,
P places (a word with the negator before it, if any).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subquad_datasets.invented import (
    Lexicon,
    Stream,
    balanced,
    below,
    invent,
    lognormal,
    source,
    zipf,
)

VERSION = 1
"""Of what is drawn: raise it where the same seed would give other texts."""

BLOCK = 256
"""Texts drawn at once; another number is another data set."""

NEUTRAL = 2_000
POLAR = 64
NEGATORS = 4
"""Words of each kind; POLAR good ones and as many bad ones."""

_LENGTHS = lognormal(60, 105, 0.92)
_NEUTRAL = zipf(NEUTRAL)
_AGREEING = 65
"""Per cent of polar words that are drawn with the text's first sign."""

_U = np.uint64


@dataclass(frozen=True)
class GeneratedTexts:
    """The texts of one split, in the place of files.

    Attributes:
        seed: of the lexicon and the texts.
        split: "train" or "test", independent streams over one lexicon.
        size: texts; more only append.
    """

    seed: int
    split: Stream
    size: int
    classes: tuple[str, ...] = ("neg", "pos")

    @cached_property
    def lexicon(self) -> Lexicon:
        """Neutral, good, bad words and negators, in this order."""
        return invent(self.seed, NEUTRAL + 2 * POLAR + NEGATORS)

    def fingerprint(self) -> str:
        """What decides every byte."""
        return f"generated {VERSION}, seed {self.seed}, {self.size} texts"

    def texts(self, *, utf8: bool) -> Iterator[tuple[bytes, int]]:
        """Every text with its label; `utf8` means nothing here, all are ASCII."""
        for number in range(-(-self.size // BLOCK)):
            letters, lengths, labels = draw_block(self.lexicon, self.seed, self.split, number)
            data = letters.tobytes()
            ends = np.cumsum(lengths).tolist()
            for end, length, label in zip(
                ends[: self.size - number * BLOCK], lengths.tolist(), labels, strict=False
            ):
                yield data[end - length : end], int(label)


def draw_block(
    lexicon: Lexicon, seed: int, split: Stream, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bytes of all,) uint8, (BLOCK,) bytes of each text, (BLOCK,) labels: a function of the
    arguments alone.
    """
    drawn = source(seed, split, number)
    labels = balanced(drawn.random_raw(BLOCK), 2)
    places = _LENGTHS[below(drawn.random_raw(BLOCK), len(_LENGTHS))]
    text = np.repeat(np.arange(BLOCK), places)
    polar = _choose(drawn.random_raw(len(text)), text, places, 2 * (places // 16) + 1)
    words = drawn.random_raw(len(text))
    negated = (words & np.where(polar, _U(3), _U(31))) == 0
    ids = _NEUTRAL[below(words, len(_NEUTRAL))]
    good = _meanings(drawn.random_raw(int(polar.sum())), text[polar], labels) != negated[polar]
    ids[polar] = NEUTRAL + np.where(good, 0, POLAR) + below(words[polar], POLAR)
    negators = NEUTRAL + 2 * POLAR + below(drawn.random_raw(len(text)), NEGATORS)
    both = np.stack([negators, ids], axis=1)
    said = np.stack([negated, np.ones_like(negated)], axis=1)
    counts = places + np.bincount(text, negated, BLOCK).astype(np.int64)
    return *lexicon.write(both[said], counts), labels


def _choose(
    words: np.ndarray, text: np.ndarray, places: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """(P,) bool: as many places of each text as `counts` (T,), an odd number, says."""
    order = np.lexsort((words, text))
    rank = np.arange(len(text)) - np.repeat(np.cumsum(places) - places, places)
    chosen = np.empty(len(text), dtype=bool)
    chosen[order] = rank < counts[text]
    return chosen


def _meanings(words: np.ndarray, text: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which polar words say something good: drawn, and all of a text turned round where the
    label is another.
    """
    good = below(words, 100) < _AGREEING
    sums = np.bincount(text, np.where(good, 1, -1), BLOCK)
    return good ^ ((sums > 0) != (labels == 1))[text]

"""Whether texts are texts, which ROUGE does not ask: n-grams that differ, that come again, and
length.

Words are those that ROUGE counts, without a stemmer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from subquad import rouge

Words = Sequence[str]

REPEATED = 4
"""Words of the n-grams whose repetition is counted (Welleck et al. 2020, seq-rep-4)."""

MOST_REPETITION = 0.5
"""Texts that repeat more than this share of their n-grams are degenerate."""

LEAST_DISTINCT = 0.25
"""Texts are degenerate whose distinct-2 is below this share of their targets'."""

MOST_ALIKE = 0.5
"""Texts are degenerate of which more than this share are one and the same."""

LENGTH_RATIOS = (1 / 5, 5.0)
"""Texts are degenerate that are shorter or longer than so many times their targets."""


def words_of(texts: Sequence[str], references: Sequence[str]) -> list[Words]:
    """The words of each text, in lower case, as where it is compared with its reference."""
    return [rouge.words_of(*pair) for pair in zip(texts, references, strict=True)]


def distinct(texts: Sequence[Words], length: int) -> float:
    """distinct-n: the share of different ones among the n-grams of all texts together, in [0, 1].

    0 where there are none. It falls with the number of texts, so only the same documents compare.

    Reference: Li et al. 2016, A diversity-promoting objective function for neural conversation
    models.
    """
    grams = [gram for text in texts for gram in _grams(text, length)]
    if grams:
        return len(set(grams)) / len(grams)
    return 0.0


def repetition(texts: Sequence[Words], length: int = REPEATED) -> float:
    """Share of a text's n-grams that stand in it before, the mean over texts, in [0, 1].

    A text without n-grams repeats none.

    Reference: Welleck et al. 2020, Neural text generation with unlikelihood training.
    """
    shares = [1 - distinct([text], length) for text in texts if len(text) >= length]
    if texts:
        return sum(shares) / len(texts)
    return 0.0


def length_ratio(texts: Sequence[Words], targets: Sequence[Words]) -> float:
    """Words of all texts over words of all targets."""
    return sum(map(len, texts)) / max(1, sum(map(len, targets)))


def degenerate(texts: Sequence[Words], targets: Sequence[Words]) -> list[str]:
    """Why these are no texts like their targets; empty where nothing is wrong."""
    shortest, longest = LENGTH_RATIOS
    ratio = length_ratio(texts, targets)
    (_, alike), *_ = Counter(map(tuple, texts)).most_common(1) or [((), 0)]
    signs = {
        f"more than {100 * MOST_ALIKE:.0f} % of them are the same text": (
            alike > max(1, MOST_ALIKE * len(texts))
        ),
        (
            f"more than {100 * MOST_REPETITION:.0f} % of a "
            f"text's {REPEATED}-grams are repeated in it"
        ): (repetition(texts) > MOST_REPETITION),
        f"distinct-2 is below {100 * LEAST_DISTINCT:.0f} % of the targets'": (
            distinct(texts, 2) < LEAST_DISTINCT * distinct(targets, 2)
        ),
        "they are less than a fifth as long as the targets": ratio < shortest,
        "they are more than five times as long as the targets": ratio > longest,
    }
    return [reason for reason, holds in signs.items() if holds]


def _grams(text: Words, length: int) -> Iterator[tuple[str, ...]]:
    """The n-grams of a text in order."""
    return zip(*(text[start:] for start in range(length)), strict=False)

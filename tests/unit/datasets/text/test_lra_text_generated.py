"""LRA Text without files: the label by reading word for word, balance, streams, and what words
alone say.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from subquad_datasets.text.generate import BLOCK, NEUTRAL, POLAR, GeneratedTexts

ROWS = list(GeneratedTexts(0, "train", 2 * BLOCK + 1).texts(utf8=True))


def sums(text: bytes) -> tuple[int, int]:
    """The sum of polarities with negators, and without."""
    words = invented()
    total = plain = 0
    before = b""
    for word in text.removesuffix(b".").split(b" "):
        polarity = (word in words["good"]) - (word in words["bad"])
        plain += polarity
        total += -polarity if before in words["negators"] else polarity
        before = word
    return total, plain


@cache
def invented() -> dict[str, set[bytes]]:
    words = GeneratedTexts(0, "train", 1).lexicon.words
    ends = (0, NEUTRAL, NEUTRAL + POLAR, NEUTRAL + 2 * POLAR, len(words))
    kinds = ("neutral", "good", "bad", "negators")
    return {
        kind: set(words[start:end]) for kind, start, end in zip(kinds, ends, ends[1:], strict=False)
    }


def test_the_label_is_the_sign_of_the_sum_and_words_alone_do_not_give_it():
    labels = np.array([label for _, label in ROWS])
    totals, plain = np.array([sums(text) for text, _ in ROWS]).T
    assert (np.sign(totals) == 2 * labels - 1).all()
    assert 0.72 < ((plain > 0) == labels)[plain != 0].mean() < 0.9


def test_texts_are_words_of_the_lexicon():
    known = set().union(*invented().values())
    assert len(known) == sum(map(len, invented().values())) == NEUTRAL + 2 * POLAR + 4
    for text, _ in ROWS[:20]:
        assert text.endswith(b".")
        assert set(text[:-1].split(b" ")) <= known

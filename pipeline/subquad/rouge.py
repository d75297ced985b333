"""ROUGE by rouge-score, of texts in any script.

Letters: N documents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

ROUGE = ("rouge1", "rouge2", "rougeL")
SCORES = tuple(name + part for name in ROUGE for part in ("_precision", "_recall", ""))
"""What is kept of a document: of each ROUGE precision, recall and, by its plain name, F1."""

_WORD = re.compile("[a-z0-9]+")
_LETTER_BY_LETTER = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""How Unicode's names of letters begin that are written without blanks between words."""


def rouge(answers: Sequence[str], references: Sequence[str], *, stemmer: bool = True) -> np.ndarray:
    """`SCORES` of each document, (N, 9) float64 in [0, 1]; 0 where a text has no words.

    Args:
        answers: what was written.
        references: what it is compared with; they say what a word is: see `tokenizer_of`.
        stemmer: Porter's, as papers on summaries use it.
    """
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds, and brings nltk

    rows = []
    for answer, reference in zip(answers, references, strict=True):
        tokenizer = tokenizer_of(reference, stemmer=stemmer)
        scores = RougeScorer(ROUGE, tokenizer=tokenizer).score(reference, answer)
        rows.append([scores[name] for name in ROUGE])  # each is precision, recall, F1
    return np.array(rows, np.float64).reshape(-1, len(SCORES))


def tokenizer_of(reference: str, *, stemmer: bool) -> Any:
    """What cuts a reference, and what is compared with it, into words: rouge-score's own where it
    knows the letters of the reference, else `words_of` without a stemmer.
    """
    from rouge_score.tokenizers import DefaultTokenizer

    if is_known(reference):
        return DefaultTokenizer(use_stemmer=stemmer)
    return _AnyScript()


def is_known(text: str) -> bool:
    """Whether a text is one that rouge-score was made for: at least half of its letters are a to
    z. It takes all others for blanks, which published numbers on English texts depend on, and finds
    no word in Russian or Chinese.
    """
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return 2 * sum(map(str.isascii, letters)) >= len(letters)


def words_of(text: str, reference: str) -> list[str]:
    """The words of a text as they are counted where it is compared with a reference; in lower
    case, without a stemmer.

    In a script that rouge-score does not know they are runs of letters, their marks and digits; and
    single letters where a script has no blanks between words.
    """
    if is_known(reference):
        return _WORD.findall(text.lower())
    return _AnyScript().tokenize(text)


class _AnyScript:
    """A tokenizer for rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        pieces = list[str]()
        for letter in unicodedata.normalize("NFKC", text).lower():
            if unicodedata.category(letter)[0] not in "LMN":
                pieces.append(" ")
            elif unicodedata.name(letter, "").startswith(_LETTER_BY_LETTER):
                pieces.append(f" {letter} ")
            else:
                pieces.append(letter)
        return "".join(pieces).split()

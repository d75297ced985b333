"""Summaries that need no trained model, with their ROUGE: an article's beginning, and one text
for all articles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rapidfuzz.distance import LCSseq

from subquad.rouge import ROUGE, SCORES, rouge, tokenizer_of
from subquad_datasets.prepared import prepare_once, read_manifest
from subquad_datasets.summarization.split import SOURCE, TARGET, ArticleSplit

_SENTENCE_END = re.compile(
    r"(?<=[.!?\u0589\u061f\u06d4\u0964\u1362])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+"
)
"""After . ! ? and what is written for them in Armenian, Arabic, Urdu, Hindi and Ethiopic; after
those of Chinese and Japanese also without a blank.
"""

_SUMMARIES = 500
"""The first summaries of TRAIN, on which the constant text is chosen."""

_MOST_WORDS = 12
"""Different words of a constant text that are tried: 1 to so many."""

_LENGTHS = 20
"""Lengths of a constant text that are tried, up to one and a half times the mean summary."""

Text = Callable[[Sequence[int]], str]


def guesses(split: ArticleSplit, train: ArticleSplit, text: Text, root: Path) -> dict[str, Any]:
    """Scores of `lead-3` and `constant text`, by rouge-score with Porter's stemmer.

    With `rougeL_low` and `rougeL_high`, the ends of the mean's 95 % interval over articles by the
    normal distribution. Kept in the root, as ROUGE takes hundredths of a second for each article.
    Empty where rouge-score is not installed.

    Args:
        split: whose articles are summarized.
        train: what the constant text is chosen on.
        text: token ids to text.
        root: where the scores are kept.
    """
    if find_spec("rouge_score") is None:
        return {}
    key = {"set": "guesses", "version": 2, "of": _place(split), "train": _place(train)}

    def build(_: Path) -> Mapping[str, Any]:
        words = constant_words(islice(_texts(train, TARGET, text), _SUMMARIES))
        said = f"{' '.join(dict.fromkeys(words))!r} repeated to {len(words)} words, from TRAIN"
        articles = _texts(split, SOURCE, text)
        constant = (" ".join(words) for _ in range(len(split)))
        return {
            "lead-3": _scores(split, map(first_sentences, articles), text),
            "constant text": {**_scores(split, constant, text), "note": said},
        }

    return dict(read_manifest(prepare_once(root / "guesses", key, build)).facts)


def first_sentences(article: str, count: int = 3) -> str:
    """A sentence ends at the end of a line, or at a blank after one of . ! ? and what is written
    for them in other scripts.
    """
    return "\n".join([sentence for sentence in _SENTENCE_END.split(article) if sentence][:count])


def constant_words(summaries: Iterable[str]) -> list[str]:
    """The words of the text that wins most ROUGE-L where it is the summary of every article.

    It is the most frequent words of the summaries, the most frequent one first, over and over. How
    many words and how long a text are what gives the largest mean ROUGE-L over these summaries.
    """
    texts = list(summaries)
    unstemmed, stemmed = (tokenizer_of("\n".join(texts), stemmer=stem) for stem in (False, True))
    counts = Counter(word for text in texts for word in unstemmed.tokenize(text))
    frequent = [word for word, _ in counts.most_common(_MOST_WORDS)]
    targets = [tokens for text in texts if (tokens := stemmed.tokenize(text))]
    if not targets:
        return []
    longest = 1.5 * fmean(map(len, targets))
    lengths = sorted({max(1, round(longest * part / _LENGTHS)) for part in range(1, _LENGTHS + 1)})

    def score(words: Sequence[str]) -> float:
        stems = stemmed.tokenize(" ".join(words))
        return fmean(_f1(stems, target) for target in targets)

    tried = [
        list(islice(cycle(frequent[:number]), length))
        for number in range(1, len(frequent) + 1)
        for length in lengths
        if number <= length
    ]
    return max(tried, key=score)


def _f1(tokens: Sequence[str], target: Sequence[str]) -> float:
    """ROUGE-L of tokens."""
    return 2 * LCSseq.similarity(tokens, target) / (len(tokens) + len(target))


def _place(split: ArticleSplit) -> list[Any]:
    """What tells the texts of a split from any others."""
    return [split.column.folder.name, split.first, split.last]


def _texts(split: ArticleSplit, kind: int, text: Text) -> Iterator[str]:
    """Articles or summaries of a split, whole."""
    column = split.column
    for row in split.rows(kind):
        yield text(column.tokens[column.offsets[row] : column.offsets[row + 1]].tolist())


def _scores(split: ArticleSplit, answers: Iterable[str], text: Text) -> dict[str, float]:
    scores = rouge(list(answers), list(_texts(split, TARGET, text)))
    table = scores[:, list(map(SCORES.index, ROUGE))]
    mean = table.mean(0)
    deviation = table.std(0, ddof=min(1, len(table) - 1))
    half = 1.96 * deviation / len(table) ** 0.5
    ends = {"": mean, "_low": np.maximum(mean - half, 0), "_high": np.minimum(mean + half, 1)}
    return {
        f"{name}{end}": float(value)
        for end, row in ends.items()
        for name, value in zip(ROUGE, row, strict=True)
    }

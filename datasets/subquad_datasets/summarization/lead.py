"""The first sentences of an article as its summary: ROUGE that needs no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from subquad_datasets.prepared import prepare_once, read_manifest
from subquad_datasets.summarization.split import SOURCE, TARGET, ArticleSplit

_ROUGE = ("rouge1", "rouge2", "rougeL")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def lead_3(split: ArticleSplit, text: Callable[[Sequence[int]], str], root: Path) -> dict[str, Any]:
    """`lead-3`: mean ROUGE F1 of the first three sentences of each article, by rouge-score with Porter's stemmer.

    With `rougeL_low` and `rougeL_high`, the ends of the mean's 95 % interval over articles by the normal distribution.
    Kept in the root, as it takes hundredths of a second for each article. Empty where rouge-score is not installed.
    """
    if find_spec("rouge_score") is None:
        return {}
    key = {"set": "lead-3", "version": 2, "texts": split.column.folder.name, "articles": [split.first, split.last]}
    return {"lead-3": read_manifest(prepare_once(root / "lead-3", key, lambda _: _scores(split, text))).facts}


def first_sentences(article: str, count: int = 3) -> str:
    """A sentence ends at the end of a line, or at a blank after one of . ! ?"""
    return "\n".join([one for one in _SENTENCE_END.split(article) if one][:count])


def _scores(split: ArticleSplit, text: Callable[[Sequence[int]], str]) -> dict[str, float]:
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds, and brings nltk

    scorer, column, found = RougeScorer(_ROUGE, use_stemmer=True), split.column, list[Any]()
    for rows in zip(split.rows(TARGET), split.rows(SOURCE), strict=True):
        target, article = (text(column.tokens[column.offsets[row] : column.offsets[row + 1]].tolist()) for row in rows)
        found.append(scorer.score(target, first_sentences(article)))
    table = np.array([[one[name].fmeasure for name in _ROUGE] for one in found])
    mean, half = table.mean(0), 1.96 * table.std(0, ddof=min(1, len(table) - 1)) / len(table) ** 0.5
    ends = {"": mean, "_low": mean - half, "_high": mean + half}
    return {f"{name}{end}": float(one) for end, row in ends.items() for name, one in zip(_ROUGE, row, strict=True)}

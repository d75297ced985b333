"""What a message suggests: the nearest known name, and a command to paste."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """Known names that look like `name`, the most alike first."""
    from rapidfuzz import process
    from rapidfuzz.distance import DamerauLevenshtein, JaroWinkler

    options = sorted(set(known))
    close = process.extract(
        name,
        options,
        scorer=DamerauLevenshtein.distance,
        score_cutoff=max(1, len(name) // 3),
        limit=None,
    )
    ranked = sorted(close, key=lambda row: (row[1], -JaroWinkler.similarity(name, row[0]), row[0]))
    return [row[0] for row in ranked[:limit]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'agf'?`, or nothing where no known name is near."""
    return "".join(f"; did you mean {found!r}?" for found in nearest(name, known))


def to_paste(*words: object) -> str:
    """`subquad` with these words, as a shell takes them: a path with blanks is quoted."""
    return shlex.join(["subquad", *map(str, words)])

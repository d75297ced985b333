"""The nearest known name, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """Known names that look like `name`, the most alike first."""
    from rapidfuzz import process
    from rapidfuzz.distance import DamerauLevenshtein, JaroWinkler

    options = sorted(set(known))
    close = process.extract(
        name, options, scorer=DamerauLevenshtein.distance, score_cutoff=max(1, len(name) // 3), limit=None
    )
    ranked = sorted(close, key=lambda row: (row[1], -JaroWinkler.similarity(name, row[0]), row[0]))
    return [row[0] for row in ranked[:limit]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'agf'?`, or nothing where no known name is near."""
    found = nearest(name, known)
    return f"; did you mean {found[0]!r}?" if found else ""

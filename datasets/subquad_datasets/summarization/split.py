"""Articles with their summaries as token ids, memory-mapped. N articles, B batch, T padded
length of summaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import NO_LABEL, Array, ArrayBatch, DataSpec, Split
from subquad_datasets.packed import PackedColumn, PackedWriter
from subquad_datasets.prepared import prepared_content
from subquad_datasets.summarization.source import Articles
from subquad_datasets.text.source import sums
from subquad_datasets.tokenizer import END_TOKEN, Tokenizer, encoded

SOURCE, TARGET, TITLES = range(3)
"""Article n has the rows 3 n, 3 n + 1 and 3 n + 2 of the column `texts`."""


@dataclass(frozen=True)
class ArticleSplit(Split):
    """Articles first .. last - 1 of a column.

    Attributes:
        column: of all texts, whole.
        first: the first article, and
        last: one after the last.
        max_source: tokens kept of an article.
        max_target: T; a summary of T tokens or more is cut after T and has no end token.
        max_titles: tokens kept of all titles; 0: titles are no input.
        notes: what a reader of a number on this split needs.
    """

    column: PackedColumn
    first: int
    last: int
    max_source: int
    max_target: int
    max_titles: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.last - self.first

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        """`inputs`, `keep`, `labels` (B, T), `reference` (B, R) and, with titles,
        `inputs_titles` and `keep_titles`.
        """
        inputs, keep = self.column.gather(self.rows(SOURCE, indices), self.max_source)
        rows = self.rows(TARGET, indices)
        target, real = self.column.gather(rows, self.max_target)
        lengths = self.column.lengths(rows)
        ended = np.flatnonzero((lengths > 0) & (lengths < self.max_target))
        labels = np.where(real, target, NO_LABEL)
        labels[ended, lengths[ended]] = END_TOKEN
        reference, _ = self.column.gather(rows, self.longest_reference)
        batch = {"inputs": inputs, "keep": keep, "labels": labels, "reference": reference}
        if self.max_titles:
            titles, keep_titles = self.column.gather(self.rows(TITLES, indices), self.max_titles)
            batch |= {"inputs_titles": titles, "keep_titles": keep_titles}
        return batch

    def rows(self, kind: int, indices: np.ndarray | None = None) -> np.ndarray:
        """Rows of the column; of all articles where none are named."""
        return 3 * (self.first + (np.arange(len(self)) if indices is None else indices)) + kind

    @cached_property
    def longest_reference(self) -> int:
        """R, at least 1."""
        return max(1, int(self.column.lengths(self.rows(TARGET)).max()))

    def lengths(self) -> np.ndarray:
        return np.minimum(self.column.lengths(self.rows(SOURCE)), self.max_source)

    def digests(self) -> np.ndarray:
        """(N,) uint64, of whole articles before anything is cut."""
        return self.column.digests()[self.rows(SOURCE)]

    def content(self) -> str:
        return prepared_content(self.column.folder, np.array([self.first, self.last]))

    def clipped(self, name: str) -> list[str]:
        """Notes on what is cut."""
        limits = {"articles": (SOURCE, self.max_source), "summaries": (TARGET, self.max_target)}
        counts = {
            what: int((self.column.lengths(self.rows(row)) > most).sum())
            for what, (row, most) in limits.items()
        }
        return [
            f"{count:,} of {len(self):,} {name} {what} cut at {limits[what][1]:,} tokens"
            for what, count in counts.items()
            if count
        ]


def pack_articles(
    folder: Path, sources: Mapping[str, Articles], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Encode articles into one column; what `TokenizedDataset.pack` does.

    Returns:
        facts: {part: {"samples": N, "titles": tokens of all titles, "notes": [...], "sources":
            sha256 of files}}.
    """
    facts: dict[str, Any] = {}
    with PackedWriter(folder, "texts", tokenizer.dtype, labels=False) as writer:
        for name, articles in sources.items():
            rows = titles = 0
            for flat, lengths in encoded(tokenizer, articles.texts()):
                writer.extend(flat, lengths)
                titles += int(lengths[(TITLES - rows) % 3 :: 3].sum())
                rows += len(lengths)
            files = articles.files()
            facts_of_part = {"samples": rows // 3, "titles": titles, "notes": articles.notes()}
            facts[name] = {**facts_of_part, "sources": sums(files) if files else {}}
    return facts


def article_spec(train: ArticleSplit, tokenizer: Tokenizer, **more: Any) -> DataSpec:
    """The description of a data set of articles; `more` is further attributes of it."""
    arrays = {"reference": Array(("reference",), "int64")}
    lengths = {"reference": train.longest_reference}
    if train.max_titles:
        arrays |= {
            "inputs_titles": Array(("titles",), "int64"),
            "keep_titles": Array(("titles",), "bool"),
        }
        lengths["titles"] = train.max_titles
    return DataSpec.tokens(
        max_len=train.max_source,
        vocab_size=len(tokenizer.pieces),
        target="sequence",
        arrays=arrays,
        lengths={"target": train.max_target, **lengths},
        end_token=END_TOKEN,
        token_bytes=tokenizer.token_bytes,
        text=tokenizer.text,
        **more,
    )

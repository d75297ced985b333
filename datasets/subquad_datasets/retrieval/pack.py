"""From files to packed texts and pairs. Each distinct text is stored once, its first 10,000
bytes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad_datasets.packed import PackedWriter
from subquad_datasets.retrieval import Config
from subquad_datasets.retrieval.documents import digest, draw_pairs, fresh, read_documents
from subquad_datasets.retrieval.source import Source
from subquad_datasets.retrieval.split import write_pairs
from subquad_datasets.retrieval.tsv import read_pairs
from subquad_datasets.text.source import sums

MAX_BYTES = 10_000
"""What the published code reads of a document before anything else."""

DIGESTS = "digests.npy"

Parts = Sequence[tuple[str, Source]]


def pack(
    folder: Path, parts: Parts, config: Config, earlier: Collection[bytes] = ()
) -> dict[str, Any]:
    """Pack splits into one folder; a build of `prepare_once`.

    Args:
        parts: split names with their sources, all of one kind.
        earlier: digests of the documents of splits that were packed before, which documents leave
            out.

    Returns:
        facts: {split: {"pairs": n, "matching": n, "dropped": documents, "blank": pairs with a text
            of blanks only, "sources": sha256 of what was read}}.

    Raises:
        DataError: malformed sources, or pairs of TRAIN with one label only.
    """
    facts: dict[str, Any] = {}
    with PackedWriter(folder, "texts", labels=False) as writer:
        texts = _Texts(writer)
        digests = set(earlier)
        for number, (name, source) in enumerate(parts):
            dropped = 0
            if source.kind in ("aan", "tsv"):
                pairs, labels = _pack_tsv(texts, source, config)
            else:
                pairs, labels, dropped = _pack_documents(
                    texts, source, config, digests, config.pair_seed + number
                )
            if name == "train":
                _check_labels(source, labels)
            write_pairs(folder, name, pairs, labels)
            blank = int(np.isin(pairs, texts.blank).any(axis=1).sum())
            facts[name] = {
                "pairs": len(labels),
                "matching": int(labels.sum()),
                "dropped": dropped,
                "blank": blank,
            }
            facts[name]["sources"] = sums(source.files(config))
    np.save(
        folder / DIGESTS, np.frombuffer(b"".join(sorted(digests)), dtype=np.uint8).reshape(-1, 16)
    )
    return facts


def read_digests(folder: Path) -> set[bytes]:
    """The digests of a packed folder's documents, to be given to `pack` as `earlier`."""
    return {row.tobytes() for row in np.load(folder / DIGESTS, allow_pickle=False)}


class _Texts:
    """The column of texts: a text that came before is not written again.

    Kept in memory: a digest and a row number for each distinct text, about 150 bytes.

    Attributes:
        blank: rows of texts that hold nothing but blanks.
    """

    def __init__(self, writer: PackedWriter):
        self._writer = writer
        self._rows: dict[bytes, int] = {}
        self.blank: list[int] = []

    def row(self, text: bytes) -> int:
        """The text's row in the column."""
        text = text[:MAX_BYTES]
        key = digest(text)
        if key not in self._rows:
            self._rows[key] = len(self._rows)
            self._writer.append(text)
            if text.isspace():
                self.blank.append(self._rows[key])
        return self._rows[key]


def _check_labels(source: Source, labels: np.ndarray) -> None:
    if labels.min() == labels.max():
        raise DataError(
            f"{source.path}: all {len(labels)} pairs have the label {labels[0]}; TRAIN needs both"
        )


def _pack_tsv(texts: _Texts, source: Source, config: Config) -> tuple[np.ndarray, np.ndarray]:
    columns = 5 if source.kind == "aan" else None
    rows = _tsv_rows(texts, read_pairs(source.path, utf8=config.check_utf8, columns=columns))
    table = np.fromiter(chain.from_iterable(rows), dtype=np.int64).reshape(-1, 3)
    return table[:, :2], table[:, 2]


def _tsv_rows(
    texts: _Texts, pairs: Iterator[tuple[int, bytes, bytes]]
) -> Iterator[tuple[int, int, int]]:
    for label, first, second in pairs:
        yield texts.row(first), texts.row(second), label


def _pack_documents(
    texts: _Texts, source: Source, config: Config, digests: set[bytes], seed: int
) -> tuple[np.ndarray, np.ndarray, int]:
    dropped: list[int] = []
    kept = fresh(read_documents(source, config), frozenset(digests), digests, dropped)
    rows = np.array([texts.row(part) for pair in kept for part in pair], dtype=np.int64)
    pairs, labels = draw_pairs(source.path, len(rows) // 2, seed)
    return rows[pairs], labels, dropped[0]

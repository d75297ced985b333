"""A stand-in from files: pairs of the two parts of documents, such as an article's body and its
abstract. N documents.

Label 1: both parts of one document; label 0: the first part of one and the second of another. Each
part of each document stands in exactly one pair of either label, so that one side alone says
nothing about the label. Pairs are drawn within a split, and a document whose text stands in an
earlier split is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from subquad.errors import DataError
from subquad_datasets.generated import random_stream
from subquad_datasets.retrieval import Config
from subquad_datasets.retrieval.source import Source, part_files
from subquad_datasets.text.lines import json_rows
from subquad_datasets.text.source import read_text


def read_documents(source: Source, config: Config) -> Iterator[tuple[bytes, bytes]]:
    """The two parts of each document.

    Raises:
        DataError: a part is missing, empty or not UTF-8.
    """
    if source.kind == "jsonl":
        for _, (first, second) in json_rows(source.path, config.first, config.second):
            yield first, second
        return
    for first, second in part_files(source.path, config):
        yield read_text(first, config.check_utf8), read_text(second, config.check_utf8)


def digest(text: bytes) -> bytes:
    """16 bytes that stand for a text."""
    return hashlib.sha256(text).digest()[:16]


def fresh(
    documents: Iterator[tuple[bytes, bytes]],
    earlier: Collection[bytes],
    added: set[bytes],
    dropped: list[int],
) -> Iterator[tuple[bytes, bytes]]:
    """The documents of which neither part is in `seen` or came before.

    Args:
        earlier: digests of earlier splits.
        added: gets the digests of these documents.
        dropped: gets one entry, how many were left out, when all are read.
    """
    count = 0
    for pair in documents:
        digests = {digest(part) for part in pair}
        if any(digest in earlier or digest in added for digest in digests):
            count += 1
            continue
        added |= digests
        yield pair
    dropped.append(count)


def draw_pairs(path: Path, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of N documents whose parts are texts 2 n and 2 n + 1.

    The partner of each document in the pairs that do not match is the next one on a random cycle
    through all of them, never itself.

    Returns:
        (2 N, 2) int64 texts and (2 N,) int64 labels, the matching pairs first.

    Raises:
        DataError: fewer than two documents.
    """
    if count < 2:
        raise DataError(
            f"{path}: {count} documents, two are needed to make a pair that does not match"
        )
    cycle = random_stream(seed, 0).permutation(count)
    other = np.empty(count, dtype=np.int64)
    other[cycle] = np.roll(cycle, -1)
    own = np.arange(count, dtype=np.int64)
    first = np.tile(2 * own, 2)
    second = 2 * np.concatenate([own, other]) + 1
    pairs = np.stack([first, second], axis=1)
    return pairs, np.repeat(np.array([1, 0], dtype=np.int64), count)

"""The stand-in without files: are two documents of invented words about one topic? Drawn in blocks.

A topic is a set of words. Of a document's words, one in eight comes from its main topic, one in
sixteen from another, a side topic, the others are common. Label 1: both documents have one main
topic; label 0: they have two. All main topics are equally likely under either label, so that one
side alone says nothing. Topics share words. Letters: D documents, W words of all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from subquad_datasets.invented import (
    Lexicon,
    Stream,
    balanced,
    below,
    invent,
    lognormal,
    source,
    zipf,
)
from subquad_datasets.packed import PackedWriter
from subquad_datasets.retrieval.split import write_pairs

VERSION = 1
"""Of what is drawn: raise it where the same seed would give other documents."""

BLOCK = 64
"""Pairs drawn at once; another number is another data set."""

COMMON = 2_000
TOPICAL = 512
"""Common words, and words of topics."""

TOPICS = 16
WORDS = 64
"""How many topics, and how many of the topical words each has."""

_LENGTHS = lognormal(100, 400, 0.5)
_COMMON = zipf(COMMON)
_U = np.uint64


def pack_generated(folder: Path, sizes: dict[Stream, int], seed: int) -> dict[str, Any]:
    """Draw splits into one folder; a build of `prepare_once`. Pair n of all has texts 2 n and 2 n +
    1.

    Args:
        sizes: splits, each a stream of its own, with their numbers of pairs; more only append.
        seed: of words, topics and documents.

    Returns:
        facts: {split: {"pairs": n, "matching": n, "dropped": 0}}.
    """
    lexicon = invent(seed, COMMON + TOPICAL)
    topics = draw_topics(seed)
    facts = dict[str, Any]()
    start = 0
    with PackedWriter(folder, "texts", labels=False) as writer:
        for name, size in sizes.items():
            labels = np.zeros(size, dtype=np.int64)
            for first in range(0, size, BLOCK):
                letters, lengths, drawn = draw_block(lexicon, topics, seed, name, first // BLOCK)
                here = min(BLOCK, size - first)
                labels[first : first + here] = drawn[:here]
                writer.extend(letters[: lengths[: 2 * here].sum()], lengths[: 2 * here])
            write_pairs(folder, name, 2 * start + np.arange(2 * size).reshape(-1, 2), labels)
            facts[name] = {"pairs": size, "matching": int(labels.sum()), "dropped": 0}
            start += size
    return facts


def draw_topics(seed: int) -> np.ndarray:
    """(TOPICS, WORDS) int64: the words of each topic."""
    words = source(seed, "lexicon", 1).random_raw(TOPICS * TOPICAL).reshape(TOPICS, TOPICAL)
    return COMMON + np.argsort(words, axis=1, kind="stable")[:, :WORDS]


def draw_block(
    lexicon: Lexicon, topics: np.ndarray, seed: int, split: Stream, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bytes of all,) uint8, (2 BLOCK,) bytes of each text, (BLOCK,) labels: a function of the
    arguments alone.
    """
    drawn = source(seed, split, number)
    labels = balanced(drawn.random_raw(BLOCK), 2)
    first = below(drawn.random_raw(BLOCK), TOPICS)
    second = np.where(labels == 1, first, _another(first, drawn.random_raw(BLOCK)))
    main = np.stack([first, second], axis=1).reshape(-1)
    side = _another(main, drawn.random_raw(2 * BLOCK))
    counts = _LENGTHS[below(drawn.random_raw(2 * BLOCK), len(_LENGTHS))]
    words = drawn.random_raw(int(counts.sum()))
    kinds = words & _U(15)
    topic = np.where(kinds < 2, np.repeat(main, counts), np.repeat(side, counts))
    ids = np.where(
        kinds < 3, topics[topic, below(words, WORDS)], _COMMON[below(words, len(_COMMON))]
    )
    return *lexicon.write(ids, counts), labels


def _another(topics: np.ndarray, words: np.ndarray) -> np.ndarray:
    """For each topic another one."""
    return (topics + 1 + below(words, TOPICS - 1)) % TOPICS

"""LRA Retrieval without files: topics by counting words, balance, streams, and what one side
says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from subquad_datasets.invented import invent
from subquad_datasets.retrieval.generate import COMMON, TOPICAL, TOPICS, draw_block, draw_topics

LEXICON, DRAWN = invent(0, COMMON + TOPICAL), draw_topics(0)
TOPICS_OF = {
    word: [topic for topic, words in enumerate(DRAWN.tolist()) if number in words]
    for number, word in enumerate(LEXICON.words)
}


def documents(split: Any, number: int = 0, seed: int = 0) -> tuple[list[bytes], np.ndarray]:
    letters, lengths, labels = draw_block(LEXICON, DRAWN, seed, split, number)
    return [part.tobytes() for part in np.split(letters, np.cumsum(lengths)[:-1])], labels


def main_topic(text: bytes) -> int:
    words = text.removesuffix(b".").split(b" ")
    found = [topic for word in words for topic in TOPICS_OF[word]]
    return int(np.bincount(found).argmax())


def test_pairs_match_where_their_topics_do():
    texts, labels = documents("train")
    topics = np.array([main_topic(text) for text in texts]).reshape(-1, 2)
    assert ((topics[:, 0] == topics[:, 1]) == (labels == 1)).mean() > 0.95
    assert set(topics.ravel()) == set(range(TOPICS))

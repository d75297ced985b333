"""LRA Retrieval without files: topics by counting words, balance, streams, and what one side says."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from subquad.data import SplitName, TestKey
from subquad_datasets.invented import invent
from subquad_datasets.retrieval import Config
from subquad_datasets.retrieval.dataset import Retrieval
from subquad_datasets.retrieval.generate import BLOCK, COMMON, TOPICAL, TOPICS, WORDS, draw_block, draw_topics

KEY = TestKey("lra-retrieval", "test of the data set")
LEXICON, DRAWN = invent(0, COMMON + TOPICAL), draw_topics(0)
TOPICS_OF = {
    word: [topic for topic, words in enumerate(DRAWN.tolist()) if number in words]
    for number, word in enumerate(LEXICON.words)
}


def make(root: Path, **params: Any) -> Retrieval:
    given = {"train_size": BLOCK + 3, "validation_size": 8, "test_size": 5, "max_len": 256, **params}
    return Retrieval(Config.model_validate(given), root)


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


def test_labels_are_balanced_and_topics_are_as_frequent_under_either():
    blocks = [documents("train", number) for number in range(4)]
    labels = np.concatenate([labels for _, labels in blocks])
    assert (labels.reshape(-1, 2).sum(axis=1) == 1).all()
    topics = np.array([main_topic(text) for texts, _ in blocks for text in texts]).reshape(-1, 2)
    for side in topics.T:
        counts = np.array([np.bincount(side[labels == label], minlength=TOPICS) for label in (0, 1)])
        expected = counts.sum(axis=0) / 2
        assert ((counts - expected) ** 2 / expected).sum() < 37.7  # chi-square, 15 degrees of freedom, 0.1 %


def test_topics_are_sets_of_topical_words_that_overlap():
    assert DRAWN.shape == (TOPICS, WORDS)
    assert all(len(set(topic)) == WORDS for topic in DRAWN.tolist())
    assert DRAWN.min() >= COMMON
    assert DRAWN.max() < COMMON + TOPICAL
    assert len(set(DRAWN.ravel().tolist())) < TOPICS * WORDS


def test_bytes_are_pinned():
    texts, labels = documents("train")
    assert hashlib.sha256(b"".join(texts) + bytes(labels.tolist())).hexdigest()[:16] == "03e9e242a73dd207"


def read(dataset: Retrieval, name: SplitName) -> tuple[list[bytes], list[int]]:
    split = dataset.split(name, KEY if name == "test" else None)
    batch = split.fetch(np.arange(len(split)), epoch=0, seed=0)
    sides = [(batch["inputs"], batch["keep"]), (batch["inputs_b"], batch["keep_b"])]
    rows = [[bytes((row[keep] - 1).astype(np.uint8)) for row, keep in zip(*side, strict=True)] for side in sides]
    return [text for pair in zip(*rows, strict=True) for text in pair], batch["labels"].tolist()


@pytest.mark.parametrize(("name", "size"), [("train", BLOCK + 3), ("validation", 8), ("test", 5)])
def test_each_split_is_the_beginning_of_its_stream(tmp_path: Path, name: Any, size: int):
    first, second = documents(name), documents(name, 1)
    texts, labels = first[0] + second[0], [*first[1].tolist(), *second[1].tolist()]
    assert read(make(tmp_path), name) == ([text[:256] for text in texts[: 2 * size]], labels[:size])


def test_streams_and_seeds_differ():
    found = [documents("train"), documents("test"), documents("validation"), documents("train", 1)]
    found.append(documents("train", seed=1))
    assert len({texts[0] for texts, _ in found}) == len(found)


def test_the_data_set_without_a_path(tmp_path: Path):
    dataset = make(tmp_path, max_tokens=200)
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.max_len, spec.vocab_size, spec.num_classes, spec.target) == (256, 257, 2, "pair")
    assert spec.sizes == {"train": BLOCK + 3, "validation": 8, "trainval": BLOCK + 11}
    assert spec.notes == (
        "stand-in data: generated pairs of documents of invented words, not the AAN files",
        f"{BLOCK + 11} of {BLOCK + 11} TRAIN pairs hold a text cut at 200 bytes",
    )
    assert len(list((tmp_path / "lra-retrieval").glob("*/manifest.json"))) == 2


@pytest.mark.parametrize("name", ["train_size", "validation_size", "test_size", "seed"])
def test_generator_settings_with_a_path_are_refused(name: str):
    with pytest.raises(ValidationError, match=f"{name} .* has no effect with path .*, or use path null"):
        Config.model_validate({"path": "x", name: 7})


@pytest.mark.parametrize(
    "given", [{"first": "body"}, {"second": "title"}, {"pair_seed": 1}, {"check_utf8": False}], ids=str
)
def test_settings_of_files_without_a_path_are_refused(given: dict[str, Any]):
    with pytest.raises(ValidationError, match=f"{next(iter(given))} .* has no effect with path null"):
        Config.model_validate(given)

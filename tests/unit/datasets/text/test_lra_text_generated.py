"""LRA Text without files: the label by reading word for word, balance, streams, and what words alone say."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from subquad.data import SplitName, TestKey
from subquad_datasets.invented import Lexicon, balanced, below, invent, lognormal, source, zipf
from subquad_datasets.text import Config
from subquad_datasets.text.dataset import Text
from subquad_datasets.text.generate import BLOCK, NEUTRAL, POLAR, GeneratedTexts

KEY = TestKey("lra-text", "test of the data set")
ROWS = list(GeneratedTexts(0, "train", 2 * BLOCK + 1).texts(utf8=True))


def make(root: Path, **params: Any) -> Text:
    return Text(Config.model_validate({"train_size": 40, "test_size": 11, **params}), root)


def sums(text: bytes) -> tuple[int, int]:
    """The sum of polarities with negators, and without."""
    words = invented()
    total = plain = 0
    before = b""
    for word in text.removesuffix(b".").split(b" "):
        polarity = (word in words["good"]) - (word in words["bad"])
        plain += polarity
        total += -polarity if before in words["negators"] else polarity
        before = word
    return total, plain


@cache
def invented() -> dict[str, set[bytes]]:
    words = GeneratedTexts(0, "train", 1).lexicon.words
    ends = (0, NEUTRAL, NEUTRAL + POLAR, NEUTRAL + 2 * POLAR, len(words))
    kinds = ("neutral", "good", "bad", "negators")
    return {kind: set(words[start:end]) for kind, start, end in zip(kinds, ends, ends[1:], strict=False)}


def test_the_label_is_the_sign_of_the_sum_and_words_alone_do_not_give_it():
    labels = np.array([label for _, label in ROWS])
    totals, plain = np.array([sums(text) for text, _ in ROWS]).T
    assert (np.sign(totals) == 2 * labels - 1).all()
    assert 0.72 < ((plain > 0) == labels)[plain != 0].mean() < 0.9


def test_texts_are_words_of_the_lexicon():
    known = set().union(*invented().values())
    assert len(known) == sum(map(len, invented().values())) == NEUTRAL + 2 * POLAR + 4
    for text, _ in ROWS[:20]:
        assert text.endswith(b".")
        assert set(text[:-1].split(b" ")) <= known


def test_lengths_are_those_of_reviews():
    lengths = [len(text) for text, _ in ROWS]
    assert np.percentile(lengths, [10, 50, 90]) == pytest.approx([580, 1030, 2500], rel=0.15)


def test_each_two_texts_have_both_labels_in_an_order_that_is_drawn():
    labels = np.array([label for _, label in ROWS[:-1]]).reshape(-1, 2)
    assert (labels.sum(axis=1) == 1).all()
    assert 0.35 < labels[:, 0].mean() < 0.65


def test_a_longer_split_only_appends_and_the_bytes_are_pinned():
    assert list(GeneratedTexts(0, "train", 7).texts(utf8=True)) == ROWS[:7]
    assert hashlib.sha256(b"".join(text for text, _ in ROWS)).hexdigest()[:16] == "f021ea3c3e6b3ccb"


def test_seed_and_split_give_other_texts():
    others = [
        list(GeneratedTexts(0, "test", 4).texts(utf8=True)),
        list(GeneratedTexts(1, "train", 4).texts(utf8=True)),
    ]
    assert ROWS[:4] != others[0] != others[1] != ROWS[:4]
    assert len({text for text, _ in ROWS}) == len(ROWS)


def read(dataset: Text, name: SplitName) -> list[bytes]:
    split = dataset.split(name, KEY if name == "test" else None)
    batch = split.fetch(np.arange(len(split)), epoch=0, seed=0)
    return [bytes((row[keep] - 1).astype(np.uint8)) for row, keep in zip(batch["inputs"], batch["keep"], strict=True)]


def test_the_data_set_without_a_path(tmp_path: Path):
    dataset = make(tmp_path, max_len=512)
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.vocab_size, spec.num_classes, spec.class_names) == (257, 2, ("neg", "pos"))
    assert spec.sizes == {"train": 36, "validation": 4, "trainval": 40}
    assert spec.notes[0] == "stand-in data: generated texts of invented words, not the IMDb reviews"
    assert read(dataset, "trainval") == [text[:512] for text, _ in ROWS[:40]]
    assert len(read(dataset, "test")) == 11


def test_each_size_prepares_its_own_split_anew(tmp_path: Path):
    make(tmp_path).prepare()
    make(tmp_path, test_size=3).prepare()
    assert len(list((tmp_path / "lra-text").glob("*/manifest.json"))) == 3


@pytest.mark.parametrize("name", ["train_size", "test_size", "seed"])
def test_generator_settings_with_a_path_are_refused(name: str):
    with pytest.raises(ValidationError, match=f"{name} .* has no effect with path .*, or use path null"):
        Config.model_validate({"path": "x", name: 7})


def test_settings_of_files_without_a_path_are_refused():
    with pytest.raises(ValidationError, match="check_utf8 false has no effect with path null"):
        Config(check_utf8=False)


def test_words_below_a_bound_are_even():
    drawn = below(source(3, "train").random_raw(60_000), 6)
    counts = np.bincount(drawn, minlength=6)
    assert len(counts) == 6
    assert (abs(counts - 10_000) < 400).all()  # more than four standard deviations


def test_balanced_labels():
    labels = balanced(source(0, "train").random_raw(50), 5).reshape(10, 5)
    assert (np.sort(labels, axis=1) == np.arange(5)).all()
    assert len({tuple(row) for row in labels.tolist()}) > 1


def test_a_lexicon_writes_its_documents():
    letters, lengths = Lexicon((b"ab", b"cde")).write(np.array([1, 0, 0]), np.array([2, 1]))
    assert (letters.tobytes(), lengths.tolist()) == (b"cde ab.ab.", [7, 3])
    assert len(set(invent(5, 300).words)) == 300


def test_tables():
    assert np.bincount(zipf(3)).tolist() == [30, 27, 25]  # 300 // 10, 300 // 11, 300 // 12
    table = lognormal(10, 100, 0.5)
    assert len(table) == 1024
    assert np.median(table) == 110
    assert np.percentile(table, 84.13) == pytest.approx(10 + 100 * np.exp(0.5), rel=0.01)

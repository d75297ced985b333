"""What splits say of their samples' lengths is what their batches hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from subquad.data import ArraySplit, Split, TestKey
from subquad_datasets.packed import PackedSplit, PackedWriter, write_packed
from subquad_datasets.retrieval.split import open_pairs, write_pairs
from subquad_datasets.text.split import CutSplit
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.dataset import UeaDataset

TEXTS = [b"abcdefg", b"", b"hi", b"a", b"lmnop"]


def seen(split: Split) -> list[int]:
    """Lengths, from the batch of all samples."""
    batch = split.fetch(np.arange(len(split)), epoch=0, seed=0)
    return ArraySplit(batch).lengths().tolist()


def said(split: Split) -> list[int]:
    lengths = split.lengths()
    assert lengths is not None
    assert lengths.dtype == np.int64
    return lengths.tolist()


@pytest.mark.parametrize("max_len", [4, 600])
def test_packed_texts_whole_and_cut(tmp_path: Path, max_len: int):
    write_packed(tmp_path, "x", TEXTS, range(5))
    split = PackedSplit(tmp_path, "x", max_len)
    assert said(split) == seen(split) == [min(len(text), max_len) for text in TEXTS]
    part = split.subset(np.array([4, 1]))
    assert said(part) == seen(part)
    for one in (split, part):
        assert said(CutSplit(one, 3)) == seen(CutSplit(one, 3))


@pytest.mark.parametrize("max_len", [3, 600])
def test_pairs_have_the_longer_ones(tmp_path: Path, max_len: int):
    with PackedWriter(tmp_path, "texts", labels=False) as writer:
        for text in TEXTS:
            writer.append(text)
    write_pairs(tmp_path, "train", np.array([[0, 1], [3, 2], [1, 1]]), np.array([0, 1, 1]))
    split = open_pairs(tmp_path, ("train",), max_len)
    assert said(split) == seen(split) == [min(7, max_len), 2, 0]
    assert said(CutSplit(split, 2)) == seen(CutSplit(split, 2))


@pytest.mark.parametrize("name", ["train", "validation", "trainval", "test"])
def test_series(tmp_path: Path, name):
    dataset = UeaDataset(UeaConfig(problem="JapaneseVowels"), tmp_path)
    split = dataset.split(name, TestKey("uea", "test of the data set") if name == "test" else None)
    assert said(split) == seen(split)
    assert len(set(said(split))) > 5


def test_a_split_that_does_not_know_its_lengths_says_so(tmp_path: Path):
    class Plain(Split):
        def __len__(self) -> int:
            return 1

        def fetch(self, indices, *, epoch, seed):
            return {"inputs": np.zeros((1, 2), dtype=np.int64)}

    assert Plain().lengths() is None
    assert CutSplit(Plain(), 1).lengths() is None

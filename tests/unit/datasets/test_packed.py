"""Packed columns: what goes in comes out, padded and cut; damage is named; splits travel to
other processes.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad.errors import DataError
from subquad_datasets.packed import PackedColumn, PackedSplit, PackedWriter, write_packed

ROWS = [np.array(row, dtype=np.uint8) for row in ([1, 2, 3], [], [4], [5, 6, 7, 8, 255])]
LABELS = [7, 0, 1, 300]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_packed(tmp_path, "train", ROWS, LABELS)
    return tmp_path


def fetch(split: PackedSplit, *indices: int) -> dict[str, np.ndarray]:
    return split.fetch(np.array(indices, dtype=np.int64), epoch=0, seed=0)


def padded(rows: list[np.ndarray], max_len: int, shift: int) -> np.ndarray:
    return np.array(
        [[*(row[:max_len].astype(int) + shift), *[0] * (max_len - len(row))] for row in rows]
    )


@pytest.mark.parametrize("max_len", [1, 4, 5, 600])  # 600: more than there are tokens
@pytest.mark.parametrize("shift", [0, 1])
def test_batches_are_padded_and_cut_to_max_len(folder, max_len, shift):
    split = PackedSplit(folder, "train", max_len, shift=shift)
    batch = fetch(split, 3, 0, 1, 3)
    picked = [ROWS[3], ROWS[0], ROWS[1], ROWS[3]]
    assert np.array_equal(batch["inputs"], padded(picked, max_len, shift))
    assert np.array_equal(batch["keep"].sum(1), [min(len(row), max_len) for row in picked])
    assert np.array_equal(batch["labels"], [300, 7, 0, 300])
    assert [batch[key].dtype for key in ("inputs", "keep", "labels")] == [
        np.int64,
        np.bool_,
        np.int64,
    ]
    assert len(split) == 4
    assert split.uncut_lengths.tolist() == [3, 0, 1, 5]


@settings(max_examples=40)
@given(
    rows=st.lists(st.lists(st.integers(0, 65_535), max_size=9), min_size=1, max_size=12),
    max_len=st.sampled_from([1, 3, 8, 513]),
    picks=st.lists(st.integers(0, 10_000), min_size=1, max_size=9),
)
def test_any_rows_survive(tmp_path_factory, rows, max_len, picks):
    folder = tmp_path_factory.mktemp("packed")
    arrays = [np.array(row, dtype=np.uint16) for row in rows]
    write_packed(folder, "x", arrays, range(len(rows)), np.uint16)
    indices = [pick % len(rows) for pick in picks]
    batch = fetch(PackedSplit(folder, "x", max_len), *indices)
    assert np.array_equal(batch["inputs"], padded([arrays[index] for index in indices], max_len, 0))
    assert np.array_equal(batch["labels"], indices)


def test_writing_in_pieces_is_the_same_as_row_by_row(folder):
    with PackedWriter(folder, "pieces") as writer:
        writer.extend(bytes([1, 2, 3]), np.array([3, 0]), np.array([7, 0]))
        writer.extend(np.array([4, 5, 6, 7, 8, 255]), np.array([1, 5]), np.array([1, 300]))
    for part in ("tokens", "offsets", "labels"):
        assert (folder / f"pieces.{part}.npy").read_bytes() == (
            folder / f"train.{part}.npy"
        ).read_bytes()


def test_a_file_of_many_tokens_is_an_ordinary_npy(tmp_path):
    tokens = np.arange(100_000, dtype=np.uint16)
    write_packed(tmp_path, "x", [tokens], [0], np.uint16)
    assert np.array_equal(np.load(tmp_path / "x.tokens.npy"), tokens)


@pytest.mark.parametrize("rows", [[], [b"", b""]])
def test_a_column_without_tokens(tmp_path, rows):
    write_packed(tmp_path, "x", rows, [0] * len(rows))
    split = PackedSplit(tmp_path, "x", 3)
    assert len(split) == len(rows)
    assert not fetch(split, *range(len(rows)))["keep"].any()


def test_a_subset_of_a_subset(folder):
    part = PackedSplit(folder, "train", 5).subset(np.array([3, 1, 0])).subset(np.array([2, 0]))
    assert len(part) == 2
    assert part.labels.tolist() == [7, 300]
    assert part.uncut_lengths.tolist() == [3, 5]
    assert PackedSplit(folder, "train", 4).lengths().tolist() == [3, 0, 1, 4]
    assert PackedSplit(folder, "train", 4).subset(np.array([3, 1])).lengths().tolist() == [4, 0]
    assert part.column.tokens[part.starts].tolist() == [1, 5]
    batch = fetch(part, 0, 1)
    assert np.array_equal(batch["inputs"], padded([ROWS[0], ROWS[3]], 5, 0))
    assert batch["labels"].tolist() == [7, 300]


def test_a_pickled_split_is_small_and_maps_the_files_itself(tmp_path):
    write_packed(tmp_path, "x", [bytes(10_000)] * 10, range(10))
    split = PackedSplit(tmp_path, "x", 7, shift=2, rows=np.array([1, 9]))
    pickled = pickle.dumps(split)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)  # noqa: S301
    assert isinstance(again.column.tokens.base, np.memmap)
    assert all(
        np.array_equal(value, fetch(again, 1)[key]) for key, value in fetch(split, 1).items()
    )


def test_nothing_can_be_written_through_a_split(folder):
    with pytest.raises(ValueError, match="read-only"):
        PackedColumn(folder, "train").tokens[0] = 1


@pytest.mark.parametrize("part", ["tokens", "offsets", "labels"])
@pytest.mark.parametrize("damage", ["cut", "lose", "empty"])
def test_damage_is_named(folder, part, damage):
    path = folder / f"train.{part}.npy"
    if damage == "lose":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else b"")
    with pytest.raises(
        DataError, match=rf"train\.{part}\.npy: missing or damaged \(.*\); prepare the data again"
    ):
        PackedSplit(folder, "train", 5)


def test_files_of_different_columns_are_refused(folder):
    np.save(folder / "train.labels.npy", np.zeros(3, np.int64))
    with pytest.raises(DataError, match=r"train\.labels\.npy: 3 labels for 4 sequences"):
        PackedSplit(folder, "train", 5)
    np.save(folder / "train.offsets.npy", np.array([0, 3, 3, 4, 8]))
    with pytest.raises(DataError, match=r"train\.offsets\.npy does not fit train\.tokens\.npy"):
        PackedSplit(folder, "train", 5)


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="tokens are kept as uint8, uint16 or uint32, not int64"):
        PackedWriter(tmp_path, "x", np.int64)
    with PackedWriter(tmp_path, "x") as writer:
        with pytest.raises(ValueError, match=r"x: tokens -1\.\.256 do not fit uint8"):
            writer.append(np.array([-1, 256]), 0)
        with pytest.raises(ValueError, match="x: 2 tokens for lengths of 3"):
            writer.extend(np.array([1, 2]), np.array([3]), np.array([0]))
        with pytest.raises(ValueError, match="labels None"):
            writer.append(np.array([1, 2]))

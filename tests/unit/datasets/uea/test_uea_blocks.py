"""Whole blocks of rows, and what is kept of large files: the same arrays and errors as row by
row.
"""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from subquad.errors import DataError
from subquad_datasets.uea import UeaConfig, blocks, dataset
from subquad_datasets.uea import ts as ts_module
from subquad_datasets.uea.dataset import UeaDataset
from subquad_datasets.uea.ts import Cases, read_ts

pytest.importorskip("pyarrow")

HEADER = "@problemName P\n@timeStamps false\n@classLabel true up down\n@data\n"
ROWS = ["1,2,3:4,-5.25,6e3:up", "7,8:9,1e-3:down", ".5,1.:0.1,2.5E+2:UP", "", "3:4: down "]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_SHORT", 0)
    monkeypatch.setattr(blocks, "_BLOCK", 30)


def both(path, monkeypatch, **options) -> tuple[Cases, Cases]:
    """Read in blocks, and row by row."""
    fast = read_ts(path, **options)
    with monkeypatch.context() as patch:
        patch.setattr(ts_module, "parse_block", lambda *_: None)
        return fast, read_ts(path, **options)


def same(first: Cases, second: Cases) -> bool:
    arrays = ("values", "lengths", "labels", "filled")
    return first.header == second.header and all(
        np.array_equal(getattr(first, a), getattr(second, a)) for a in arrays
    )


def test_blocks_give_the_same_arrays(tmp_path, monkeypatch):
    path = tmp_path / "a.ts"
    path.write_text(HEADER + "\r\n".join(ROWS * 7) + "\n")
    taken = []
    monkeypatch.setattr(
        ts_module, "parse_block", lambda *a: taken.append(blocks.parse_block(*a)) or taken[-1]
    )
    fast = read_ts(path)
    assert sum(len(block) for block in taken if block) == len(fast) - 1
    assert same(*both(path, monkeypatch))
    numbers = np.random.default_rng(0).standard_normal(4000) * 10.0 ** np.random.default_rng(
        1
    ).integers(-300, 300, 4000)
    path.write_text(HEADER + "".join(f"{number!r}:{-number!r}:up\n" for number in numbers.tolist()))
    assert np.array_equal(read_ts(path).values[:, 0], numbers)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,x:2,3:up", "channel 1, value 2: 'x' is not a number"),
        ("1,:2,3:up", "channel 1, value 2: '' is not a number"),
        ("1.2.3,1:2,3:up", "channel 1, value 1: '1.2.3' is not a number"),
        ("1-2,1:2,3:up", "is not a number"),
        ("1_0,1:2,3:up", "'1_0' is not a number"),
        ("1,2:3:up", "channel 2 has 1 values, channel 1 has 2"),
        ("1:2:3:up", "has 3 channels, not 2"),
        ("1,1e999:2,3:up", "not finite"),
        ("1,?:2,3:up", "is missing"),
        ("1,2:3,4:left", "class 'left'"),
        ("1,2:3,4", "channels"),
        ("@data", "tags stand before it"),
        ("1,\0:3,4:up", "NUL byte"),
    ],
)
def test_a_fault_within_a_block_is_named_with_its_line(tmp_path, row, reason):
    path = tmp_path / "a.ts"
    path.write_text(HEADER + "1,2:3,4:up\n" * 20 + row + "\n" + "1,2:3,4:up\n" * 20)
    with pytest.raises(DataError, match=rf"a\.ts:25: .*{reason}".replace("?", r"\?")):
        read_ts(path)


def test_forms_that_only_python_reads_stay_readable(tmp_path, monkeypatch):
    path = tmp_path / "a.ts"
    path.write_text(HEADER + "1, 2:+3,4:up\n" * 9 + "1,?:NaN,5:down\n" * 9)
    fast, slow = both(path, monkeypatch, missing="interpolate")
    assert same(fast, slow)
    assert fast.filled.sum() == 18


def test_a_row_before_the_end_of_a_damaged_file_is_named_first(tmp_path):
    path = tmp_path / "a.ts.gz"
    packed = gzip.compress(
        (HEADER + "1,2:3,4:up\n" * 3 + "1,x:3,4:up\n" + "1,2:3,4:up\n" * 4000).encode()
    )
    path.write_bytes(packed[:-9])
    with pytest.raises(DataError, match=r"a\.ts\.gz:8: channel 1, value 2"):
        read_ts(path)


def test_a_large_file_is_read_once(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "WORTH_KEEPING", 0)
    for name in ("TRAIN", "TEST"):
        (tmp_path / f"P_{name}.ts").write_text(HEADER + "1,2:3,4:up\n5,7:6,8:down\n" * 10)
    config = UeaConfig(problem="P", path=str(tmp_path))
    whole = UeaDataset(config, tmp_path / "root").load("trainval")
    reads = []
    monkeypatch.setattr(dataset, "read_ts", lambda *a, **b: reads.append(a) or read_ts(*a, **b))
    again = UeaDataset(config, tmp_path / "root")
    assert all(
        np.array_equal(again.load("trainval").arrays[name], found)
        for name, found in whole.arrays.items()
    )
    assert again.describe().class_names == ("down", "up")
    assert reads == []
    (tmp_path / "P_TRAIN.ts").write_text(HEADER + "1,2:3,4:up\n5,7:6,9:down\n1,2:3,4:up\n" * 10)
    assert len(UeaDataset(config, tmp_path / "root").load("trainval")) == 30
    assert len(reads) == 1

"""sktime's loader is the reference: every file that it reads, ours reads to the very same
numbers.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from splits import REAL_DATA

from subquad_datasets.uea.source import bundled_folder
from subquad_datasets.uea.ts import read_ts

REGRESSION = ("Covid3Month", "Tecator")
SHARED = REAL_DATA / "uea"


def bundled_files() -> list[Path]:
    folder = bundled_folder()
    assert folder is not None
    return sorted(path for path in folder.glob("*/*_T*.ts") if path.parent.name not in REGRESSION)


def assert_same(path: Path, plain: Path) -> None:
    """Compare our reading of `path` with sktime's of `plain`, its uncompressed twin."""
    from sktime.datasets import load_from_tsfile

    loaded: Any = load_from_tsfile(str(plain), return_data_type="nested_univ")
    frame, labels = loaded
    ours = read_ts(path)
    columns = [
        np.concatenate([np.asarray(series, dtype=np.float64) for series in frame[name]])
        for name in frame
    ]
    np.testing.assert_array_equal(ours.values, np.stack(columns, axis=1))
    np.testing.assert_array_equal(ours.lengths, [len(series) for series in frame.iloc[:, 0]])
    names = np.array([name.lower() for name in ours.header.class_names])
    np.testing.assert_array_equal(names[ours.labels], labels)
    np.testing.assert_array_equal(ours.labels, np.unique(labels, return_inverse=True)[1])


def test_every_bundled_file_is_compared() -> None:
    names = {path.parent.name for path in bundled_files()}
    assert {"JapaneseVowels", "BasicMotions", "PLAID", "GunPoint"} <= names


@pytest.mark.ci
@pytest.mark.parametrize(
    "name",
    ["JapaneseVowels_TRAIN", "JapaneseVowels_TEST", "BasicMotions_TRAIN", "BasicMotions_TEST"],
)
def test_multivariate_bundled_files_equal_sktime(name: str) -> None:
    path = next(path for path in bundled_files() if path.stem == name)
    assert_same(path, path)


@pytest.mark.ci
def test_all_bundled_files_equal_sktime() -> None:
    for path in bundled_files():
        assert_same(path, path)


@pytest.mark.extended
@pytest.mark.parametrize("path", sorted(SHARED.glob("*/*.ts.xz")), ids=lambda path: path.name)
def test_archive_files_equal_sktime(path: Path, tmp_path: Path) -> None:
    plain = tmp_path / path.stem
    plain.write_bytes(lzma.decompress(path.read_bytes()))
    assert_same(path, plain)


@pytest.mark.extended
def test_archive_files_are_there() -> None:
    assert len(list(SHARED.glob("*/*.ts.xz"))) == 21, (
        "set SUBQUAD_REAL_DATA to the folder that holds uea/"
    )

"""A file of the user's: the statistics and the length of TRAIN, with or without classes."""

from __future__ import annotations

import numpy as np
import pytest

from subquad.data import NO_LABEL, TestKey
from subquad.errors import DataError

ROWS = "2,3,4,5:1,2,3,4\n5,6:7,8\n"
PLAIN = "@dimensions 2\n@classLabel false\n@data\n"


def test_a_copy_of_test_is_read_as_test(toy, tmp_path):
    dataset = toy(max_len=3)
    test = dataset.split("test", TestKey("uea", "test of the data set"))
    found = dataset.open_file(tmp_path / "data" / "Toy" / "Toy_TEST.ts", labelled=True)
    assert found.arrays.keys() == test.arrays.keys()
    assert all(np.array_equal(found.arrays[name], test.arrays[name]) for name in test.arrays)
    assert found.notes == ("1 of 2 Toy_TEST.ts series clipped to 3 steps",)


@pytest.mark.parametrize("header", [PLAIN, PLAIN.replace("@classLabel false\n", "")])
def test_rows_without_a_class(toy, write, header, tmp_path):
    dataset = toy()
    found = dataset.open_file(write("new.ts", ROWS, header), labelled=False)
    labelled = dataset.open_file(tmp_path / "data" / "Toy" / "Toy_TEST.ts", labelled=False)
    for sample in (found, labelled):
        assert sample.labels.tolist() == [NO_LABEL, NO_LABEL]
    assert np.array_equal(found.arrays["inputs"], labelled.arrays["inputs"])


@pytest.mark.parametrize(
    ("rows", "header", "labelled", "message"),
    [
        (ROWS, PLAIN, True, "2: @classLabel must be: true"),
        (
            "1,2:1,2:left\n",
            PLAIN.replace("false", "true left right"),
            True,
            "@classLabel differs from that of TRAIN",
        ),
        ("1,2\n", PLAIN.replace("dimensions 2", "dimensions 1"), False, "1 channels, TRAIN has 2"),
        ("1,2:1,2:up\n", PLAIN, False, "4: the row has 3 channels, not 2"),
        (
            "1,2:1,2\n",
            PLAIN.replace("false", "true up down"),
            False,
            "4: the row has 1 channels, not 2",
        ),
        ("1,2:1,2\n", PLAIN.replace("false", "maybe"), False, "2: @classLabel must be: true"),
        ("", PLAIN, False, "no series after @data"),
    ],
)
def test_files_that_do_not_fit(toy, write, rows, header, labelled, message):
    with pytest.raises(DataError, match=message):
        toy().open_file(write("new.ts", rows, header), labelled=labelled)

"""What a well-formed .ts file is read as."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad.errors import DataError
from subquad_datasets.uea.rows import _parse_fast
from subquad_datasets.uea.ts import read_ts


def test_series_follow_each_other_with_their_lengths(write) -> None:
    cases = read_ts(write("a.ts", "1,2,3:4,5,6:up\n7,8:9,10:down\n"))
    np.testing.assert_array_equal(cases.values, [[1, 4], [2, 5], [3, 6], [7, 9], [8, 10]])
    np.testing.assert_array_equal(cases.lengths, [3, 2])
    assert cases.header.class_names == ("down", "up")
    np.testing.assert_array_equal(cases.labels, [1, 0])


@pytest.mark.parametrize(
    "rows",
    [
        "1,2:3,4:up\r\n5,6:7,8:down\r\n",
        "1,2:3,4:up\n\n5,6:7,8:down",
        " 1, 2 :3 ,4: up \n5,6:7,8:down\n",
        "1,2:3,4:UP\n5,6:7,8:Down\n",
        "1.0,2e0:+3,4.:up\n5,6:.7e1,8:down\n",
    ],
    ids=[
        "CRLF",
        "blank line, no newline at the end",
        "spaces",
        "case of the class",
        "number formats",
    ],
)
def test_harmless_variations_are_the_same_data(write, rows: str) -> None:
    plain = read_ts(write("plain.ts", "1,2:3,4:up\n5,6:7,8:down\n"))
    other = read_ts(write("other.ts", rows))
    np.testing.assert_array_equal(other.values, plain.values)
    np.testing.assert_array_equal(other.labels, plain.labels)


@pytest.mark.parametrize(
    ("ending", "compress"), [(".ts.xz", lzma.compress), (".ts.gz", gzip.compress)]
)
def test_compressed_file_is_the_same_data(write, ending: str, compress) -> None:
    plain = write("plain.ts", "1,2:3,4:up\n5,6:7,8:down\n")
    packed = plain.with_name("packed" + ending)
    packed.write_bytes(compress(plain.read_bytes()))
    np.testing.assert_array_equal(read_ts(packed).values, read_ts(plain).values)


@pytest.mark.parametrize(
    "text",
    ["% a comment", "# a comment", "text without a sign: 1,2", "2 channels", "@problemName B"],
)
def test_text_of_the_header_is_passed_over(write, text: str) -> None:
    path = write(
        "a.ts", "1,2:3,4:up\n", f"@problemName A\n{text}\n@classLabel true up down\n@data\n"
    )
    np.testing.assert_array_equal(read_ts(path).values, [[1, 3], [2, 4]])


def test_long_line_and_one_step(write) -> None:
    long = ",".join(["0.125"] * 200_000)
    cases = read_ts(write("a.ts", f"{long}:{long}:up\n1:2:down\n"))
    np.testing.assert_array_equal(cases.lengths, [200_000, 1])


def test_series_length_binds_equally_long_series_only(write) -> None:
    header = "@equalLength false\n@seriesLength 9\n@classLabel true up down\n@data\n"
    np.testing.assert_array_equal(
        read_ts(write("a.ts", "1,2:up\n1,2,3:down\n", header)).lengths, [2, 3]
    )


def test_labels_are_positions_in_the_sorted_strings(write) -> None:
    header = "@classLabel true 1.0 2.0 10.0\n@data\n"
    cases = read_ts(write("a.ts", "0:1.0\n0:2.0\n0:10.0\n", header))
    assert cases.header.class_names == ("1.0", "10.0", "2.0")
    np.testing.assert_array_equal(cases.labels, [0, 2, 1])


def test_interpolation_is_linear_inside_and_constant_at_both_ends(write) -> None:
    cases = read_ts(write("a.ts", "?,1,NaN,?,4,?:1,2,3,4,5,6:up\n"), missing="interpolate")
    np.testing.assert_allclose(cases.values[:, 0], [1, 1, 2, 3, 4, 4], rtol=1e-15)
    np.testing.assert_array_equal(cases.values[:, 1], [1, 2, 3, 4, 5, 6])
    assert cases.filled.sum() == 4


def test_interpolation_stays_within_series_and_channel(write) -> None:
    cases = read_ts(write("a.ts", "1,?:100,100:up\n?,9:200,?:up\n"), missing="interpolate")
    np.testing.assert_array_equal(cases.values, [[1, 100], [1, 100], [9, 200], [9, 200]])


def test_steps_without_a_value_at_the_end_are_padding(write) -> None:
    rows = "1,?,3,NaN,?:4,5,?,nan,?:up\n6,7,8,?,?:9,9,9,9,?:down\n1,NaN,?,?,?:2,?,?,?,?:up\n"
    equal = "@dimensions 2\n@equalLength true\n@seriesLength 5\n@classLabel true up down\n@data\n"
    cases = read_ts(write("a.ts", rows, equal), missing="interpolate")
    assert cases.lengths.tolist() == [3, 4, 1]
    assert cases.ended.tolist() == [2, 1, 4]
    assert cases.filled.tolist() == [2, 1, 0]
    assert cases.values[:3].tolist() == [[1, 4], [2, 5], [3, 5]]
    with pytest.raises(
        DataError,
        match=r"channel 1, value 2 is missing \('\?'\); set .*=interpolate to fill it in; where it "
        "is padding, all channels must be missing up to the end of the series$",
    ):
        read_ts(write("a.ts", rows))
    assert read_ts(write("b.ts", rows.split("\n")[2])).lengths.tolist() == [1]
    with pytest.raises(DataError, match=r"b\.ts:10: the series has no value$"):
        read_ts(write("b.ts", "?,NaN:nan,?:up\n"), missing="interpolate")


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=4))
def test_fast_parse_is_exact(table: list[list[float]]) -> None:
    values = _parse_fast([",".join(map(repr, row)) for row in table])
    assert values is not None
    np.testing.assert_array_equal(values, table)


@given(st.text(alphabet="0123456789.,eE+-_xnaif? ", min_size=1, max_size=12))
def test_fast_parse_never_accepts_what_python_would_not(text: str) -> None:
    values = _parse_fast([text])
    if values is not None:
        np.testing.assert_array_equal(values[0], [float(token) for token in text.split(",")])


def test_reader_does_not_change_its_file(write) -> None:
    path: Path = write("a.ts", "1,2:3,4:up\n")
    before = path.read_bytes()
    read_ts(path)
    assert path.read_bytes() == before

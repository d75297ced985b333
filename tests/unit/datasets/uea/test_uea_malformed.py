"""Every malformed .ts file is refused with `file:line:` and a reason; none is read as something
else.
"""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import pytest

from subquad.errors import DataError
from subquad_datasets.uea.ts import read_ts

HEADER = (
    "@problemName Toy\n@timeStamps false\n@univariate false\n@dimensions 2\n"
    "@equalLength false\n@classLabel true up down\n@data\n"
)
ROW = "1,2,3:4,5,6:up\n"


def swap(old: str, new: str) -> str:
    assert old in HEADER
    return HEADER.replace(old, new)


MALFORMED: dict[str, tuple[str | bytes, int, str]] = {
    "empty file": ("", 1, "the file is empty"),
    "only white space": ("\n \n\t\n", 1, "the file is empty"),
    "byte order mark": (
        b"\xef\xbb\xbf" + (HEADER + ROW).encode(),
        1,
        "starts with a byte order mark",
    ),
    "UTF-16": ((HEADER + ROW).encode("utf-16"), 1, "starts with a byte order mark"),
    "bad UTF-8": (HEADER.encode() + b"1,2:3,\xff4:up\n", 8, "byte 0xff at column 7 is not UTF-8"),
    "NUL": (HEADER.encode() + b"1,\0:3,4:up\n", 8, "NUL byte at column 3"),
    "no @data": (HEADER.replace("@data\n", ""), 6, "ends without @data"),
    "rows without @data": (
        HEADER.replace("@data\n", "") + ROW,
        7,
        "a row before @data; is the @data line missing?",
    ),
    "missing value before @data": ("?,1:2,3:up\n" + HEADER, 1, "a row before @data"),
    "@classLabel without @": (
        swap("@classLabel", "classLabel") + ROW,
        7,
        "no @classLabel before @data",
    ),
    "no @classLabel": (
        swap("@classLabel true up down\n", "") + ROW,
        6,
        "no @classLabel before @data",
    ),
    "@classLabel false": (
        swap("true up down", "false") + ROW,
        6,
        "@classLabel must be: true, then the class names",
    ),
    "@classLabel without names": (
        swap("true up down", "true") + ROW,
        6,
        "@classLabel must be: true, then",
    ),
    "@classLabel empty": (swap(" true up down", "") + ROW, 6, "@classLabel must be: true, then"),
    "class twice": (swap("up down", "up down Up") + ROW, 6, "the same class, twice"),
    "@targetLabel": (
        swap("@classLabel true up down", "@targetLabel true") + ROW,
        6,
        "a regression problem",
    ),
    "unknown tag": (
        swap("@equalLength", "@equalLenght") + ROW,
        5,
        "unknown tag @equalLenght; did you mean 'equalLength'?",
    ),
    "tag twice": (
        swap("@univariate false", "@dimensions 2") + ROW,
        4,
        "@dimensions was already given on line 3",
    ),
    "tag after @data": (HEADER + ROW + "@missing true\n", 9, "@missing after @data"),
    "bad boolean": (
        swap("@equalLength false", "@equalLength maybe") + ROW,
        5,
        "true or false, not 'maybe'",
    ),
    "bad count": (
        swap("@dimensions 2", "@dimensions two") + ROW,
        4,
        "positive whole number, not 'two'",
    ),
    "zero count": (
        swap("@dimensions 2", "@dimensions 0") + ROW,
        4,
        "positive whole number, not '0'",
    ),
    "time stamps": (
        swap("@timeStamps false", "@timeStamps true") + ROW,
        2,
        "time stamps cannot be read",
    ),
    "no rows": (HEADER, 7, "no series after @data"),
    "unknown class": (
        HEADER + ROW + "1,2:3,4:dwon\n",
        9,
        "class 'dwon' is not in @classLabel (down, up); did you mean 'down'?",
    ),
    "no class": (HEADER + "1,2:3,4:\n", 8, "class '' is not in @classLabel"),
    "too few channels": (
        HEADER + ROW + "1,2:up\n",
        9,
        "the row has 1 channels, not 2; is it cut off?",
    ),
    "too many channels": (HEADER + "1,2:3,4:5,6:up\n", 8, "the row has 3 channels, not 2"),
    "first row decides": (
        swap("@dimensions 2\n", "") + ROW + "1,2:up\n",
        8,
        "the row has 1 channels, not 2",
    ),
    "cut in the last channel": (
        HEADER + ROW + "1,2,3:4,5",
        9,
        "the row has 1 channels, not 2; is it cut off?",
    ),
    "cut in the first channel": (HEADER + ROW + "1,2", 9, "is it cut off?"),
    "cut in the class": (HEADER + ROW + "1,2,3:4,5,6:u", 9, "class 'u' is not in @classLabel"),
    "not a number": (HEADER + "1,2:3,four:up\n", 8, "channel 2, value 2: 'four' is not a number"),
    "comment among rows": (HEADER + ROW + "# end\n", 9, "is it cut off?"),
    "value left out": (HEADER + "1,,3:4,5,6:up\n", 8, "channel 1, value 2: '' is not a number"),
    "trailing comma": (HEADER + "1,2:3,4,:up\n", 8, "channel 2, value 3: '' is not a number"),
    "two numbers in one": (
        HEADER + "1 2,3:4,5:up\n",
        8,
        "channel 1, value 1: '1 2' is not a number",
    ),
    "underscore": (HEADER + "1_0,2:3,4:up\n", 8, "channel 1, value 1: '1_0' is not a number"),
    "decimal comma": (HEADER + "1;5,2:3,4:up\n", 8, "'1;5' is not a number"),
    "inf": (HEADER + "1,2:inf,4:up\n", 8, "channel 2, value 1: 'inf' is not finite"),
    "-Infinity": (
        HEADER + "1,-Infinity:3,4:up\n",
        8,
        "channel 1, value 2: '-Infinity' is not finite",
    ),
    "too large": (HEADER + "1,2:3,1e999:up\n", 8, "channel 2, value 2: '1e999' is not finite"),
    "?": (
        HEADER + "1,?:3,4:up\n",
        8,
        "channel 1, value 2 is missing ('?'); set dataset.params.missing=interpolate",
    ),
    "nan": (HEADER + "1,2:NaN,4:up\n", 8, "channel 2, value 1 is missing ('NaN')"),
    "empty channel": (HEADER + "1,2::up\n", 8, "channel 2 is empty"),
    "first channel empty": (HEADER + ":1,2:up\n", 8, "channel 1 is empty"),
    "channels of two lengths": (
        HEADER + "1,2,3:4,5:up\n",
        8,
        "channel 2 has 2 values, channel 1 has 3",
    ),
    "unequal": (
        swap("@equalLength false", "@equalLength true") + ROW + "1,2:3,4:up\n",
        9,
        "has 2 steps, not 3 as @equal",
    ),
    "@seriesLength": (
        swap("@equalLength false", "@equalLength true\n@seriesLength 4") + ROW,
        9,
        "the series has 3 steps, not 4",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_file_is_refused_with_file_and_line(name: str, tmp_path: Path) -> None:
    content, line, reason = MALFORMED[name]
    path = tmp_path / "Toy_TRAIN.ts"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=re.escape(f"{path}:{line}: ")) as caught:
        read_ts(path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", ["1,inf:3,4:up", "1,1e400:3,4:up"])
def test_infinity_is_not_a_missing_value(row: str, tmp_path: Path) -> None:
    path = tmp_path / "Toy_TRAIN.ts"
    path.write_text(HEADER + row)
    with pytest.raises(DataError, match="is not finite"):
        read_ts(path, missing="interpolate")


def test_channel_without_any_value_cannot_be_interpolated(tmp_path: Path) -> None:
    path = tmp_path / "Toy_TRAIN.ts"
    path.write_text(HEADER + ROW + "1,2:?,?:up\n")
    with pytest.raises(
        DataError, match=r"Toy_TRAIN\.ts:9: channel 2 has no value to interpolate from"
    ):
        read_ts(path, missing="interpolate")


@pytest.mark.parametrize(
    ("ending", "compress"), [(".ts.xz", lzma.compress), (".ts.gz", gzip.compress)]
)
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_damaged_compressed_file(ending: str, compress, damage: str, tmp_path: Path) -> None:
    packed = compress((HEADER + ROW * 500).encode())
    path = tmp_path / f"Toy_TRAIN{ending}"
    path.write_bytes(packed[: len(packed) // 2] if damage == "cut" else b"not compressed")
    with pytest.raises(
        DataError, match=r"Toy_TRAIN\.ts\...:\d+: the compressed file is damaged or cut off"
    ):
        read_ts(path)


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_ts(tmp_path)

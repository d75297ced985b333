"""Tables as spreadsheets and other programs write them: marks, encodings, separators, line ends."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subquad.errors import DataError
from subquad.security.limits import COLUMNS
from subquad_datasets.table import Config
from subquad_datasets.table.dataset import Table

Make = Callable[..., Table]
NAMES = ("läuft", "Füße")
ROWS = [["id", "t", "x", "label"]]
ROWS += [[f"s{n}", str(t), f"{n + t / 4}", NAMES[n % 2]] for n in range(10) for t in range(3)]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(name, content, **params)`: the data set of a file with this content."""

    def _make(name: str, content: bytes, **params: Any) -> Table:
        (tmp_path / name).write_bytes(content)
        given = {"path": str(tmp_path / name), "time": "t", "test_fraction": 0.3, **params}
        return Table(Config.model_validate(given), tmp_path / "root")

    return _make


def csv(separator: str = ",", end: str = "\n", encoding: str = "utf-8") -> bytes:
    return "".join(f"{separator.join(row)}{end}" for row in ROWS).encode(encoding)


def packed(content: bytes) -> bytes:
    """Without the time, so that tests have the same names in each process."""
    return gzip.compress(content, mtime=0)


def inputs(dataset: Table) -> np.ndarray:
    split = dataset.load("trainval")
    return split.fetch(np.arange(len(split)), epoch=0, seed=0)["inputs"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("bom.csv", csv(encoding="utf-8-sig"), "UTF-8"),
        ("bom.csv.gz", packed(csv(encoding="utf-8-sig")), "UTF-8"),
        ("excel.txt", csv("\t", "\r\n", "utf-16"), "UTF-16, separated by tabs"),
        ("excel.csv", csv(";", "\r\n", "utf-8-sig"), "UTF-8, separated by semicolons"),
        ("be.csv", b"\xfe\xff" + csv(encoding="utf-16-be"), "UTF-16"),
        ("utf32.csv", csv(encoding="utf-32"), "UTF-32"),
        ("semicolons.csv", csv(";"), "UTF-8, separated by semicolons"),
        ("tabs.tsv", csv("\t"), "UTF-8, separated by tabs"),
        ("dos.csv", csv(end="\r\n"), "UTF-8"),
        ("mac.csv", csv(end="\r"), "UTF-8"),
        ("mac16.csv", csv("\t", "\r", "utf-16"), "UTF-16, separated by tabs"),
        ("mac.csv.gz", packed(csv(end="\r")), "UTF-8"),
        ("unended.csv", csv().rstrip(b"\n"), "UTF-8"),
        ("ended.csv", csv(end="\r\n") + b"\r\n\r\n", "UTF-8"),
    ],
)
def test_every_form_gives_the_same_series(make: Make, name: str, content: bytes, told: str):
    dataset = make(name, content)
    assert dataset.describe().class_names == tuple(sorted(NAMES))
    assert np.array_equal(inputs(dataset), inputs(make("plain.csv", csv())))
    assert dataset.files_read()[0] == (
        f"{name}: CSV in {told}, 30 rows of 10 series, none left out"
    )
    assert not any("rows are not lines" in line for line in dataset.files_read())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_faults_keep_their_line(make: Make, encoding: str, end: str):
    content = csv(";", end, encoding).decode(encoding).replace("s3;0;3.0", "s3;0;three")
    with pytest.raises(DataError, match=r"own\.csv:11: column 'x': 'three' is not a number$"):
        make("own.csv", content.encode(encoding)).describe()


def test_values_with_line_ends_and_empty_lines_between_rows(make: Make):
    lines = csv().decode().split("\n")[:-1]
    lines = [f"{lines[0]},note", *(f'{line},"one\n\ntwo"' for line in lines[1:])]
    lines.insert(4, "")
    dataset = make("notes.csv", "\n".join(lines).encode(), channels=("x",))
    assert np.array_equal(inputs(dataset), inputs(make("plain.csv", csv())))
    lines[5] = lines[5].replace("1.0", "one")
    with pytest.raises(DataError, match=r"notes\.csv:12: column 'x': 'one' is not a number"):
        make("notes.csv", "\n".join(lines).encode(), channels=("x",)).describe()


def test_rows_that_a_quote_between_tabs_swallows_are_refused(make: Make):
    lines = csv("\t").decode().split("\n")[:-1]
    lines = [f"{lines[0]}\tnote", *(f"{line}\tsaid" for line in lines[1:])]
    lines[4] += ' 5" and more'
    assert np.array_equal(
        inputs(make("own.tsv", "\n".join(lines).encode(), channels=("x",))),
        inputs(make("plain.csv", csv())),
    )
    lines[5] = lines[5].replace("said", '"said')
    lines[8] += '"'
    with pytest.raises(
        DataError, match=r"own\.tsv:6: a quote opens a value .* goes on to line 9; "
    ):
        make("own.tsv", "\n".join(lines).encode(), channels=("x",)).describe()


@pytest.mark.parametrize("cell", ["\uff11\uff12", "\u0663", "1_0", "0x1A", "\u2212\uff11"])
@pytest.mark.parametrize("column", ["t", "x"])
def test_numbers_are_those_that_other_programs_read(make: Make, column: str, cell: str):
    place = ROWS[0].index(column)
    rows = [[*row[:place], cell, *row[place + 1 :]] if row[0] == "s3" else row for row in ROWS]
    content = "".join(f"{','.join(row)}\n" for row in rows).encode()
    with pytest.raises(
        DataError, match=rf"own\.csv:11: column '{column}': .* is (text|not a number)"
    ):
        make("own.csv", content).describe()


def test_line_ends_of_an_old_mac_leave_those_within_quotes(make: Make):
    lines = csv().decode().split("\n")[:-1]
    content = "\r".join([f"{lines[0]},note", *(f'{line},"one\ntwo"' for line in lines[1:])])
    dataset = make("notes.csv", content.encode(), channels=("x",))
    assert np.array_equal(inputs(dataset), inputs(make("plain.csv", csv())))


def test_names_of_columns_may_have_another_separator_in_them(make: Make):
    semicolons = csv(";").replace(b"x;", b"x, m/s;", 1)
    assert make("own.csv", semicolons, channels=("x, m/s",)).describe().channels == 1
    quoted = csv().replace(b"x,", b'"x;y;z;u;v",', 1)
    assert make("own.csv", quoted, channels=("x;y;z;u;v",)).describe().channels == 1


@pytest.mark.ci
def test_thousands_of_columns(make: Make):
    head = ",".join(f"a rather long name of column {n}" for n in range(40_000))
    values = ",".join(["0.123456789012345678901234"] * 40_000)
    lines = csv().decode().split("\n")[:-1]
    wide = [f"{lines[0]},{head}", *(f"{line},{values}" for line in lines[1:])]
    dataset = make("wide.csv", "\n".join(wide).encode())
    assert dataset.describe().channels == 40_001
    assert dataset.files_read()[2].endswith("column 48 (numbers) and 39,951 more")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_too_many_columns_are_refused(make: Make, separator: str):
    with pytest.raises(DataError, match=r"own\.csv: columns: 100,001, at most 100,000 are read"):
        make("own.csv", (separator * (COLUMNS + 1)).encode()).describe()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "own.csv",
            csv(encoding="cp1252"),
            r"own\.csv:2: byte 0xe4 at column 11 is not UTF-8; save the file as UTF-8$",
        ),
        (
            "own.csv",
            csv(encoding="utf-16-le"),
            r"own\.csv:1: NUL byte at column 2; .*UTF-16 without its mark: .* save it as UTF-8$",
        ),
        (
            "own.csv",
            csv(encoding="utf-16") + b"\x00\xd8",
            r"own\.csv:32: not UTF-16-LE, as its byte order mark says \(.*\); save the file as UTF",
        ),
        (
            "own.csv",
            csv(";").replace(b"0.25", b"0,25"),
            r"own\.csv:3: column 'x': '0,25' is not a number; a comma may be a decimal point or "
            r"mean thousands: write 1\.5 or 1000$",
        ),
        ("own.csv", csv("|"), r"own\.csv:1: no column 'id'; it has id\|t\|x\|label"),
        (
            "own.csv",
            csv().replace(b"x,label", b"x;y;z,label", 1).replace(b"id,t", b"id;t"),
            r"own\.csv:2: 1 values, the header has 4 columns separated by semicolons$",
        ),
        (
            "own.csv",
            b"id,t;x;label,\n",
            r"own\.csv:1: as many commas as semicolons between column names; put each name that",
        ),
        ("own.csv", b"sep=;\n" + csv(";"), r"own\.csv:1: Excel's line sep= .*; take this line out"),
        ("own.xlsx", b"PK", r"own\.xlsx: tables end in \.csv, .*; save the sheet as CSV in UTF-8$"),
        ("own.csv", b"\xff\xfe", r"own\.csv:1: the file is empty"),
        ("own.csv", b"\xef\xbb\xbf", r"own\.csv:1: the file is empty"),
        ("own.csv.gz", packed(csv())[:-20], r"own\.csv\.gz:\d+: the compressed file is"),
    ],
)
def test_what_is_not_said_beyond_doubt_is_one_line(make, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        make(name, content).describe()
    assert "\n" not in str(caught.value)

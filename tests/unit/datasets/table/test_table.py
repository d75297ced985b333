"""Series from CSV, Parquet and NPZ: layouts, splits, targets, statistics, and what is refused
with its line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow
from pyarrow import parquet
from pydantic import ValidationError
from splits import KEY, batch

from subquad.data import NO_LABEL
from subquad.errors import DataError
from subquad_datasets.table import PLUGIN, Config
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.dataset import UeaDataset

ROWS = "id,t,a,b,label,split\n"


DATASET = ("table", {})


@pytest.fixture
def data(tmp_path) -> Path:
    return tmp_path / "walks.csv"


@pytest.fixture
def file(data) -> Path:
    return data


def series(count: int, length: int = 3, seed: int = 0, classes: str = "xy") -> dict[str, list[Any]]:
    """Columns of `count` series."""
    values = np.random.default_rng(seed).normal(size=(count * length, 2)).round(6)
    rows = [(n, t) for n in range(count) for t in range(length)]
    return {
        "id": [f"s{n}" for n, _ in rows],
        "t": [t for _, t in rows],
        "a": values[:, 0].tolist(),
        "b": values[:, 1].tolist(),
        "label": [classes[n % len(classes)] for n, _ in rows],
    }


def write(file: Path, columns: dict[str, list[Any]]) -> None:
    table = pa.table(columns)
    parquet.write_table(table, file) if file.suffix == ".parquet" else arrow.write_csv(table, file)


def test_rows_become_padded_series_with_statistics_of_train(make, file):
    rows = "p,0,1,10,walk,train\np,1,3,20,walk,train\nq,0,5,30,run,train\n"
    rows += "r,0,1,5,run,test\nr,1,1,5,run,test\nr,2,1,5,run,test\n"
    file.write_text(ROWS + rows)
    dataset = make(time="t", split="split")
    found, test = batch(dataset, "trainval"), batch(dataset, "test")
    deviation = np.std([1, 3, 5], ddof=1)
    assert found["inputs"][:, :, 0] == pytest.approx(np.array([[-2, 0], [2, 0]]) / deviation)
    assert found["keep"].tolist() == [[True, True], [True, False]]
    assert (found["labels"].tolist(), test["labels"].tolist()) == ([1, 0], [0])
    assert test["inputs"].shape == (1, 2, 2)
    spec = dataset.describe()
    assert (spec.class_names, spec.max_len, spec.channels, spec.target) == (
        ("run", "walk"),
        2,
        2,
        "class",
    )
    assert dataset.load("test").notes == ("1 of 1 TEST series clipped to 2 steps",)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_every_format_gives_the_same(make, file, tmp_path, ending: str):
    write(file, series(12))
    expected = batch(make(time="t", test_fraction=0.3), "trainval")
    other = tmp_path / f"other.{ending}"
    write(other, series(12)) if ending != "csv.gz" else arrow.write_csv(
        pa.table(series(12)), pa.CompressedOutputStream(str(other), "gzip")
    )
    found = batch(make(path=str(other), time="t", test_fraction=0.3), "trainval")
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_windows_of_an_npz_are_the_same_series(make, file, tmp_path):
    columns = series(12)
    write(file, columns)
    x = np.stack([columns["a"], columns["b"]], 1).reshape(12, 3, 2)
    np.savez(tmp_path / "w.npz", x=x, y=np.array(columns["label"][::3]))
    windows = make(path=str(tmp_path / "w.npz"), test_fraction=0.3)
    table = make(channels=("a", "b"), test_fraction=0.3)
    for name in ("train", "validation", "test"):
        expected, found = batch(table, name), batch(windows, name)
        assert all(np.array_equal(expected[key], found[key]) for key in expected)


def test_lengths_and_arrays_for_splits_of_an_npz(make, tmp_path):
    splits = np.array(["train", "train", "validation", "test"])
    np.savez(
        tmp_path / "w.npz",
        x=np.arange(12.0).reshape(4, 3),
        y=np.arange(4) % 2,
        lengths=[3, 2, 1, 3],
        part=splits,
    )
    dataset = make(path=str(tmp_path / "w.npz"), split="part", normalize=False)
    assert batch(dataset, "train")["inputs"][:, :, 0].tolist() == [[0, 1, 2], [3, 4, 0]]
    assert batch(dataset, "validation")["inputs"][:, :, 0].tolist() == [[6, 0, 0]]
    assert dataset.describe().sizes == {"train": 2, "validation": 1, "trainval": 3}


def test_order_of_rows_is_that_of_time(make, file):
    columns = series(8)
    write(file, columns)
    expected = batch(make(time="t", test_fraction=0.3), "trainval")
    order = np.lexsort(
        (np.random.default_rng(0).permutation(24), [int(value[1:]) for value in columns["id"]])
    )
    write(file, {name: [values[row] for row in order] for name, values in columns.items()})
    found = batch(make(time="t", test_fraction=0.3), "trainval")
    assert np.array_equal(expected["inputs"], found["inputs"])
    dates = [f"2020-01-{1 + t:02}T00:00" for t in columns["t"]]
    write(file, {**columns, "t": dates})
    assert np.array_equal(
        batch(make(time="t", test_fraction=0.3), "trainval")["inputs"], expected["inputs"]
    )


def test_a_folder_with_a_file_for_each_split(make, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for seed, (name, count) in enumerate({"train": 6, "validation": 4, "test": 2}.items()):
        write(folder / f"{name}.csv", series(count, seed=seed))
    dataset = make(path=str(folder), time="t")
    assert dataset.describe().sizes == {"train": 6, "validation": 4, "trainval": 10}
    assert len(batch(dataset, "test")["labels"]) == 2
    assert dataset.describe().notes == ()
    assert PLUGIN.label(Config(path=str(folder))) == "parts"


def test_parts_are_drawn_by_class_and_groups_stay_together(make, file):
    columns = series(40, length=1)
    columns["who"] = [f"person{int(value[1:]) % 10}" for value in columns["id"]]
    columns["a"] = [float(int(value[1:]) % 10) for value in columns["id"]]
    write(file, columns)
    given = {"channels": ("a", "b"), "test_fraction": 0.2, "normalize": False}
    grouped, plain = make(group="who", **given), make(**given)
    people = [
        set(batch(grouped, name)["inputs"][:, 0, 0].tolist())
        for name in ("train", "validation", "test")
    ]
    assert set.union(*people) == set(range(10))
    assert sum(map(len, people)) == 10
    assert np.bincount(batch(plain, "test")["labels"]).tolist() == [4, 4]
    assert plain.describe().notes == ("TEST is a part of the series (8 of 40), drawn with seed 0",)
    again = batch(make(split_seed=1, **given), "test")["inputs"]
    assert not np.array_equal(again, batch(plain, "test")["inputs"])


def test_numbers_are_described_by_train_and_may_be_missing(make, file):
    columns = series(10, length=1)
    columns["wind"], columns["rain"] = [float(n) for n in range(10)], [None, *([1.0, 3.0] * 5)[:9]]
    columns["split"] = ["train"] * 8 + ["test"] * 2
    write(file, columns)
    dataset = make(
        target="values",
        labels=("wind", "rain"),
        channels=("a", "b"),
        split="split",
        validation_fraction=0.25,
    )
    spec = dataset.describe()
    assert spec.values == {
        "wind": pytest.approx((3.5, np.arange(8).std())),
        "rain": pytest.approx((13 / 7, 0.989743)),
    }
    assert (spec.target, spec.lengths["values"], spec.sizes["validation"]) == ("values", 2, 2)
    labels = batch(dataset, "trainval")["labels"]
    assert labels.dtype == np.float32
    assert np.isnan(labels[0, 1])
    scores = dataset.reference_scores(dataset.split("test", KEY))["mean"]
    assert scores["mae"] == pytest.approx(
        np.mean([np.mean([4.5, 5.5]), np.mean([abs(3 - 13 / 7), abs(1 - 13 / 7)])])
    )


def test_several_labels_and_their_commoner_answers(make, file):
    columns = series(10, length=1)
    columns["red"], columns["big"] = [1, 1, 1, 0, 1, 1, 0, 1, 0, 1], [0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    columns["split"] = ["train"] * 8 + ["test"] * 2
    write(file, columns)
    dataset = make(
        target="multilabel",
        labels=("red", "big"),
        channels=("a",),
        split="split",
        validation_fraction=0.25,
    )
    spec = dataset.describe()
    assert (spec.class_names, spec.num_classes, spec.target) == (("red", "big"), 2, "multilabel")
    scores = dataset.reference_scores(dataset.split("test", KEY))["majority"]
    assert scores == {
        "mean_average_precision": 0.5,
        "macro_f1": pytest.approx((2 / 3 + 0) / 2),
        "micro_f1": 0.5,
        "exact_match": 0.5,
    }


def test_gaps_are_filled_where_asked(make, file):
    rows = (
        "p,1,x,train\np,,x,train\np,?,x,train\np,4,x,train\nq,NA,y,train\nq,2,y,train\nr,1,x,test\n"
    )
    file.write_text("id,a,label,part\n" + rows)
    dataset = make(missing="interpolate", normalize=False, split="part")
    assert batch(dataset, "trainval")["inputs"][:, :, 0].tolist() == [[1, 2, 3, 4], [2, 2, 0, 0]]
    assert dataset.describe().notes == ("3 TRAIN values interpolated",)
    with pytest.raises(
        DataError,
        match=r"walks\.csv:3: channel 1 is missing; set dataset.params.missing=interpolate to fill "
        "it in; where it is padding, all channels must be missing up to the end of the series$",
    ):
        make(split="part").describe()


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("missing", ["refuse", "interpolate"])
def test_steps_without_a_value_at_the_end_are_padding(make, file, tmp_path, ending, missing):
    nan = np.nan
    x = np.array([[[1, 5], [nan, 6], [nan, nan]], [[2, 7], [nan, nan], [nan, nan]], [[3, 8]] * 3])
    if missing == "refuse":
        x[0, 1, 0] = 4
    path = tmp_path / f"w.{ending}"
    split = ["train", "train", "test"]
    if ending == "npz":
        np.savez(path, x=x, y=["u", "v", "u"], split=split)
    else:
        rows = [(n, *x[n, step], "uvu"[n], split[n]) for n in range(3) for step in range(3)]
        write(
            path,
            dict(zip(("id", "a", "b", "label", "split"), zip(*rows, strict=True), strict=True)),
        )
    dataset = make(path=str(path), missing=missing, normalize=False, split="split")
    spec = dataset.describe()
    found = batch(dataset, "trainval")
    assert spec.max_len == 2
    assert found["keep"].tolist() == [[True, True], [True, False]]
    assert found["inputs"][0].tolist() == [[1, 5], [1 if missing == "interpolate" else 4, 6]]
    ended = "2 of 2 TRAIN series end in steps without a value, which are read as padding"
    filled = ["1 TRAIN values interpolated"] if missing == "interpolate" else []
    assert spec.notes == (*filled, ended)
    assert batch(dataset, "test")["keep"].all()
    if ending != "npz":
        assert "3 without a value at their ends left out" in dataset.files_read()[0]


def test_files_of_a_user_need_neither_splits_nor_labels(make, file, tmp_path):
    columns = series(8)
    write(
        file,
        {**columns, "split": ["test" if value == "s7" else "train" for value in columns["id"]]},
    )
    dataset = make(time="t", split="split")
    write(
        tmp_path / "new.csv",
        {name: values for name, values in series(2, seed=1).items() if name != "label"},
    )
    unlabelled = dataset.open_file(tmp_path / "new.csv", labelled=False)
    assert unlabelled.labels.tolist() == [NO_LABEL] * 2
    write(tmp_path / "new.csv", series(2, seed=1))
    assert dataset.open_file(tmp_path / "new.csv", labelled=True).labels.tolist() == [0, 1]
    assert dataset.open_file(file, labelled=False).arrays["inputs"].shape == (8, 3, 2)


def test_a_uea_problem_written_as_csv_gives_the_same_arrays(make, tmp_path):
    uea = UeaDataset(UeaConfig(problem="JapaneseVowels"), tmp_path / "root")
    raw = UeaDataset(UeaConfig(problem="JapaneseVowels", normalize=False), tmp_path / "root")
    folder = tmp_path / "vowels"
    folder.mkdir()
    names = uea.describe().class_names
    for part, name in (("trainval", "train"), ("test", "test")):
        whole = batch(raw, part)
        number, step = np.nonzero(whole["keep"])
        columns = {
            f"c{c}": whole["inputs"][number, step, c].astype(np.float64).tolist() for c in range(12)
        }
        labels = [names[whole["labels"][n]] for n in number]
        write(folder / f"{name}.csv", {"id": [f"s{n}" for n in number], **columns, "label": labels})
    table = make(path=str(folder))
    for part in ("train", "validation", "trainval", "test"):
        expected, found = batch(uea, part), batch(table, part)
        assert np.array_equal(found["labels"], expected["labels"])
        assert np.array_equal(found["keep"], expected["keep"])
        # raw values went through float32
        np.testing.assert_allclose(found["inputs"], expected["inputs"], atol=2e-6)


REFUSED = [
    ("", {}, r"walks\.csv:1: the file is empty"),
    ("id,a,label\n", {}, r"walks\.csv:2: no rows"),
    ("id,a,a\n", {}, r"walks\.csv:1: column name 'a' is empty or there twice"),
    ("id,a,label\np,1\n", {}, r"walks\.csv:2: 2 values, the header has 3 columns"),
    ("id,a,label\np,1,x\np,one,x\n", {}, r"walks\.csv:3: column 'a': 'one' is not a number"),
    ("id,a,label\np,1,x\np,inf,x\n", {}, r"walks\.csv:3: column 'a': inf is not finite"),
    ("id,a,label\np,1,x\n,2,x\n", {}, r"walks\.csv:3: column 'id' is empty"),
    (
        "id,a,label\np,1,x\nq,2,x\np,3,x\n",
        {},
        r"walks\.csv:4: series 'p' comes again; put its rows together, or give",
    ),
    (
        "id,a,label\np,1,x\np,2,y\n",
        {},
        r"walks\.csv:3: column 'label' is y, but x before in its series",
    ),
    ("id,a,label\np,1,x\np,2,x\n", {"time": "a"}, r"no column is left for channels"),
    (
        "id,a,t,label\np,1,1,x\np,1,1,x\n",
        {"time": "t"},
        r"walks\.csv:3: t 1 is there twice in a series",
    ),
    (
        "id,a,lable\np,1,x\n",
        {},
        r"dataset.params.labels: .*walks\.csv:1: no column 'label'; .*did you mean 'lable'\?",
    ),
    (
        "id,a,label,s\np,1,x,train\nq,2,x,tset\n",
        {"split": "s", "test_fraction": None},
        r"walks\.csv:3: column 's' has 'tset', must be",
    ),
    (
        "id,a,label,s\np,1,x,train\n",
        {"split": "s", "test_fraction": None},
        r"no series of split test in column 's'",
    ),
    (
        "id,a,label\np,1,1\nq,2,1\nr,3,1\n",
        {"target": "values"},
        r"walks\.csv: 'label' has one value in TRAIN",
    ),
    (
        "id,a,label\np,1,1\nq,2,3\nr,3,1\n",
        {"target": "multilabel"},
        r"walks\.csv:3: column 'label': 3; labels of target multilabel must be 0, 1 or missing",
    ),
    (
        "id,a,label\np,1,x\n",
        {"test_fraction": None},
        r"nothing says which series are the test split; give a test file",
    ),
    (
        "id,a,label,s\np,1,x,train\n",
        {"split": "s"},
        r"split and test_fraction both say which series are the test split",
    ),
]


HEAD = "id,t,a,label\n"
REFUSED += [
    (
        HEAD + "p,1,1,x\np,x7,2,x\np,3,3,x\n",
        {"time": "t"},
        r"walks\.csv:3: column 't': 'x7' is text, and 2 others",
    ),
    (HEAD + "p,1,1,x\np,nan,2,x\n", {"time": "t"}, r"walks\.csv:3: column 't': 'nan' is missing"),
    (HEAD + "p,1,1,x\np,,2,x\n", {"time": "t"}, r"walks\.csv:3: column 't' is empty"),
    ("id,a,label\np,1,1\nq,2,01\n", {}, r"walks\.csv:3: column 'label': '01' and '1' look alike"),
    ("id,a,label\np,1,up\nq,2,Up\n", {}, r"walks\.csv:3: column 'label': 'Up' and 'up' look alike"),
    ("id,a,label\n1,1,x\n01,2,x\n", {}, r"walks\.csv:3: column 'id': '01' and '1' look alike"),
    ('id,a,label\np,"1,000",x\n', {}, r"walks\.csv:2: column 'a': '1,000' is not a number"),
    ("id,a,label\np,1,5,x\n", {}, r"walks\.csv:2: 4 values, the header has 3 columns"),
    (
        'id,a,label\np,1,"x\nq,2,y\nr,3,y\n',
        {},
        r"walks\.csv:2: not CSV, from this row on: unexpected end",
    ),
    (
        'id,a,label\np,1,x\np,2,"x\nq,2,y"\n',
        {},
        r"walks\.csv:3: column 'label': .* has a line end or NUL in it",
    ),
    ('id,a,label\np,1,"x"\n"q\nr",2,y\n', {}, r"walks\.csv:3: column 'id': .* has a line end"),
    ("id,a,label\np,1,x\0\nq,2,y\n", {}, r"walks\.csv:2: column 'label': .* NUL in it"),
    ("id,a,label\np,1e300,x\n", {}, r"walks\.csv:2: column 'a': 1e\+300 is too large for float32"),
    ("id,a,label\np,true,x\np,1,x\n", {}, r"walks\.csv:2: column 'a': 'true' is not a number"),
    (
        "id,a,label\np,1,x\rq,2,y\n",
        {},
        r"walks\.csv:2: not CSV, from this row on: new-line character",
    ),
]


@pytest.mark.parametrize(("text", "params", "message"), REFUSED)
def test_what_is_refused(make, file, text: str, params: dict[str, Any], message: str):
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        make(**{"test_fraction": 0.3, **params}).describe()


def test_text_that_is_not_utf8_is_named_by_its_line(make, file):
    file.write_bytes(b"id,a,label\np,1,x\nq,2,caf\xe9\n")
    with pytest.raises(DataError, match=r"walks\.csv:3: byte 0xe9 at column 8 is not UTF-8"):
        make(test_fraction=0.3).describe()


def test_a_row_of_another_length_that_is_not_utf8_is_one_line(make, file):
    file.write_bytes(b"id,a,label\np,1,x\nq,2,caf\xe9,y\n")
    with pytest.raises(DataError, match=r"walks\.csv:3: byte 0xe9 at column 8 is not UTF-8"):
        make(test_fraction=0.3).describe()


def test_line_ends_in_columns_that_are_not_read_keep_lines_right(make, file):
    rows = ['p,1,x,"one\ntwo"', "q,2,y,z", "r,no,y,z", "s,4,x,z"]
    file.write_text("id,a,label,note\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"walks\.csv:5: column 'a': 'no' is not a number"):
        make(test_fraction=0.3, channels=("a",)).describe()
    file.write_text(file.read_text().replace(",no,", ",3,"))
    told = make(test_fraction=0.3, channels=("a",)).files_read()
    assert told[0] == "walks.csv: CSV in UTF-8, 4 rows of 4 series, none left out"
    assert "columns that are not read: note" in told
    assert "rows are not lines: some values have line ends in them, or lines are empty" in told


def test_channels_are_those_of_train_by_name(make, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    columns = series(6)
    write(folder / "train.csv", columns)
    turned = {name: columns[name] for name in ("label", "b", "t", "id", "a")}
    write(folder / "test.csv", turned)
    dataset = make(path=str(folder), time="t")
    assert np.array_equal(batch(dataset, "test")["inputs"], batch(dataset, "trainval")["inputs"])
    write(folder / "test.csv", {**columns, "c": columns["b"]})
    with pytest.raises(DataError, match=r"test\.csv:1: column 'c' is no channel of TRAIN"):
        make(path=str(folder), time="t").prepared_test()
    del columns["b"]
    write(folder / "test.csv", columns)
    with pytest.raises(DataError, match=r"test\.csv:1: no column 'b', a channel of TRAIN"):
        make(path=str(folder), time="t").prepared_test()


def test_true_and_false_and_times_are_the_same_in_parquet(make, file, tmp_path):
    columns = series(8)
    columns["b"] = [value > 0 for value in columns["b"]]
    start = np.datetime64("2024-01-05T10:00:00")
    columns["t"] = [(start + np.timedelta64(90 * t, "s")).astype(object) for t in columns["t"]]
    order = np.random.default_rng(0).permutation(24).tolist()
    columns = {name: [values[row] for row in order] for name, values in columns.items()}
    write(file, columns)
    write(tmp_path / "w.parquet", columns)
    found = [
        make(path=str(path), time="t", test_fraction=0.3) for path in (file, tmp_path / "w.parquet")
    ]
    first, second = (batch(dataset, "trainval") for dataset in found)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert [dataset.files_read()[1] for dataset in found] == ["rows in the order of t: dates"] * 2
    assert "channels: a (numbers), b (true, false)" in found[0].files_read()


def test_a_part_that_is_a_link_to_nowhere_is_not_left_out(make, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for name in ("train", "test"):
        write(folder / f"{name}.csv", series(6))
    (folder / "validation.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(DataError, match=r"validation\.csv: is a link that leads nowhere"):
        make(path=str(folder), time="t").describe()
    (folder / "validation.csv").unlink()
    write(folder / "Validation.csv", series(6))
    with pytest.raises(
        DataError, match=r"Validation\.csv: such a file is called validation\.csv; rename it"
    ):
        make(path=str(folder), time="t").describe()


def test_labels_are_checked_against_train(make, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder / "train.csv", series(6))
    write(folder / "test.csv", series(2, classes="xz"))
    with pytest.raises(DataError, match=r"test\.csv:5: class 'z' is none of TRAIN: x, y"):
        make(path=str(folder), time="t").split("test", KEY)


@pytest.mark.parametrize(
    ("arrays", "params", "message"),
    [
        ({"y": [0]}, {}, r"no array 'x'; it has y"),
        ({"x": np.zeros((2, 3)), "y": [0]}, {}, r"y has shape \(1,\), x has 2 series"),
        (
            {"x": np.zeros(2), "y": [0, 1]},
            {},
            r"x has shape \(2,\) and type float64, must be numbers with 2 or 3 axes",
        ),
        (
            {"x": np.zeros((2, 3)), "y": [0.5, 1]},
            {},
            r"y has shape \(2,\) and type float64, must be \(N,\) integers",
        ),
        ({"x": np.full((2, 3), np.inf), "y": [0, 1]}, {}, r"x\[0\]: a value is not finite"),
        ({"x": np.full((2, 3), np.nan), "y": [0, 1]}, {}, r"x\[0\]: the series has no value"),
        ({"x": [[1, 2, 3], [np.nan, 2, 3]], "y": [0, 1]}, {}, r"x\[1\]: channel 1 is missing"),
        (
            {"x": np.zeros((2, 3)), "y": [0, 1], "lengths": [3, 4]},
            {},
            r"lengths\[1\] is not 1 to 3",
        ),
        (
            {"x": np.zeros((2, 3)), "y": [0, 1], "lengths": [3, 2.5]},
            {},
            r"lengths .* must be whole numbers",
        ),
        ({"x": np.zeros((2, 3)), "y": [0, np.inf]}, {"target": "values"}, r"y\[1\]: not finite"),
        (
            {"x": np.full((2, 3), 1e300), "y": [0, 1]},
            {},
            r"x\[0\]: a value is too large for float32",
        ),
        ({"x": np.zeros((2, 3)), "y": ["1", "01"]}, {}, r"y has '1' and '01', which look alike"),
        (
            {"x": np.zeros((2, 3)), "y": ["a", "\ud83d"]},
            {},
            r"y holds half a surrogate pair, which",
        ),
        ({"x": np.zeros((2, 3)), "y": [b"a", b"\xe9"]}, {}, r"y has bytes that are no ASCII"),
        (
            {"x": np.zeros((2, 3), complex), "y": [0, 1]},
            {},
            r"x has .* type complex128, must be numbers",
        ),
        (
            {"x": np.zeros((2, 3)), "y": [0, 1]},
            {"time": "t"},
            r"dataset.params.time t has no effect with an .npz file",
        ),
    ],
)
def test_windows_that_are_refused(make, tmp_path, arrays, params, message):
    np.savez(tmp_path / "w.npz", **arrays)
    with pytest.raises(DataError, match=message):
        make(path=str(tmp_path / "w.npz"), test_fraction=0.5, **params).describe()


def test_pickles_and_other_files_are_not_opened(make, tmp_path):
    np.savez(tmp_path / "w.npz", x=np.array([object()]), y=[0])
    with pytest.raises(DataError, match=r"w\.npz: no readable \.npz file"):
        make(path=str(tmp_path / "w.npz"), test_fraction=0.5).describe()
    np.save(tmp_path / "w.npy", np.zeros(3))
    (tmp_path / "w.npy").rename(tmp_path / "w.npz")
    with pytest.raises(DataError, match=r"w\.npz: no readable \.npz file"):
        make(path=str(tmp_path / "w.npz"), test_fraction=0.5).describe()
    (tmp_path / "w.xlsx").touch()
    with pytest.raises(DataError, match=r"w\.xlsx: tables end in \.csv"):
        make(path=str(tmp_path / "w.xlsx"), test_fraction=0.5).describe()
    (tmp_path / "w.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"w\.parquet: cannot be read"):
        make(path=str(tmp_path / "w.parquet"), test_fraction=0.5).describe()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"labels": ("a", "b")},
            "labels has 2 columns: target class has 1, or use target multilabel",
        ),
        ({"time": "id"}, "column 'id' is named twice: give each column one meaning"),
    ],
)
def test_parameters_that_do_not_fit(params: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        Config.model_validate({"path": "x.csv", **params})


def test_texts_of_parquet_that_are_not_utf8_are_refused(make, tmp_path):
    columns = series(4)
    words = pa.array([f"{word}\xff".encode("latin-1") for word in columns["label"]])
    texts = pa.Array.from_buffers(pa.string(), len(words), words.buffers())
    parquet.write_table(pa.table({**columns, "label": texts}), tmp_path / "w.parquet")
    with pytest.raises(DataError, match=r"w\.parquet: cannot be read: .*[Ii]nvalid UTF"):
        make(path=str(tmp_path / "w.parquet"), test_fraction=0.5).describe()

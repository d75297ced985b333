"""LRA Retrieval: tsv files of pairs, the stand-in from documents, splits that share nothing, and
bad files.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from splits import KEY, REAL_DATA, batch, bytes_of, dataset_of, of_real_data

from subquad.errors import DataError
from subquad_datasets.retrieval import Config
from subquad_datasets.retrieval.documents import draw_pairs
from subquad_datasets.retrieval.pack import MAX_BYTES

TRAIN = (
    "1.0\tP1\tP2\tone text\tits twin\n0.0\tP1\tP3\tone text\tsomething "
    "else\n1.0\tP3\tP2\tsomething else\tits twin\n"
)
EVAL = "0.0\tP4\tP5\tx \"quoted\tb'y'\n1.0\tP4\tP1\tone text\tz\n"
TEST = "1.0\tP8\tP9\tunseen\talso unseen\n"


DATASET = ("lra-retrieval", {"max_len": 20})


def read(dataset, name: str) -> list[tuple[str, str, int]]:
    found = batch(dataset, name)
    sides = [[text.decode() for text in bytes_of(found, side)] for side in ("", "_b")]
    return list(zip(*sides, found["labels"].tolist(), strict=True))


def write_tsv(folder: Path, prefix: str = "new_aan_pairs.", train: str | bytes = TRAIN) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("eval", EVAL), ("test", TEST)):
        (folder / f"{prefix}{name}.tsv").write_bytes(
            rows.encode() if isinstance(rows, str) else rows
        )


def document(number: int) -> dict[str, Any]:
    return {"id": number, "article": f"body {number} of it", "abstract": f"abstract {number}"}


def write_jsonl(folder: Path, **splits: list[dict[str, Any]]) -> None:
    for name, rows in splits.items():
        with lzma.open(folder / f"{name}.jsonl.xz", "wt", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)


def standard(folder: Path) -> None:
    write_jsonl(
        folder,
        train=[document(n) for n in range(9)],
        val=[document(n) for n in range(20, 24)],
        test=[document(n) for n in range(30, 35)],
    )


@pytest.mark.parametrize("inside", ["", "tsv_data", "lra_release/lra_release/tsv_data"])
def test_the_official_files(make, data, inside: str):
    write_tsv(data / inside)
    dataset = make()
    dataset.prepare()
    assert read(dataset, "train") == [
        ("one text", "its twin", 1),
        ("one text", "something else", 0),
        ("something else", "its twin", 1),
    ]
    assert read(dataset, "validation") == [('x "quoted', "b'y'", 0), ("one text", "z", 1)]
    assert read(dataset, "trainval") == read(dataset, "train") + read(dataset, "validation")
    assert read(dataset, "test") == [("unseen", "also unseen", 1)]
    spec = dataset.describe()
    assert (spec.vocab_size, spec.num_classes, spec.class_names) == (257, 2, ("other", "same"))
    assert spec.sizes == {"train": 3, "validation": 2, "trainval": 5}
    assert spec.notes == (
        "stand-in data: train has 3 pairs, the released AAN file 147,086",
        "stand-in data: validation has 2 pairs, the released AAN file 18,090",
    )
    assert dataset.split("test", KEY).notes == (
        "stand-in data: test has 1 pairs, the released AAN file 17,437",
    )


def test_files_with_as_many_rows_as_the_released_ones_are_no_stand_in(make, data, monkeypatch):
    monkeypatch.setattr(
        "subquad_datasets.retrieval.dataset.OFFICIAL_PAIRS",
        {"train": 3, "validation": 2, "test": 2},
    )
    write_tsv(data)
    assert make().describe().notes == ()
    assert make().split("test", KEY).notes == (
        "stand-in data: test has 1 pairs, the released AAN file 2",
    )


def test_the_manifest_holds_the_sums_of_the_sources(make, data, tmp_path):
    write_tsv(data)
    make().prepare()
    facts = [
        json.loads(path.read_text())["facts"] for path in (tmp_path / "root").rglob("manifest.json")
    ]
    found = {
        name: sum
        for parts in facts
        for part in parts.values()
        for name, sum in part["sources"].items()
    }
    assert found == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in data.iterdir()
    }


def test_texts_of_blanks_are_counted(make, data):
    write_tsv(data, train=TRAIN + "0.0\ta\tb\t  \tc\n")
    assert "1 pairs of train hold a text of blanks only" in make().describe().notes


def test_any_tsv_of_pairs_is_labelled_a_stand_in(make, data):
    write_tsv(data, prefix="", train="1\ta\tb\n0\tc\td\n")
    (data / "eval.tsv").rename(data / "validation.tsv")
    dataset = make()
    assert read(dataset, "train") == [("a", "b", 1), ("c", "d", 0)]
    assert dataset.describe().notes == ("stand-in data: pairs, from data, not the AAN files",)


def test_a_text_is_stored_once_and_at_most_its_first_bytes(make, data, tmp_path):
    long = "é" * MAX_BYTES
    write_tsv(data, train=f"1.0\t1\t2\t{long}\tits twin\n0.0\t3\t2\tother\tits twin\n")
    dataset = make(max_len=MAX_BYTES + 50)
    split = dataset.load("train")
    stored = np.load(next((tmp_path / "root").rglob("texts.offsets.npy")))
    assert len(stored) - 1 == 3 + 4  # texts of TRAIN and of the validation part
    assert split.fetch(np.array([0]), epoch=0, seed=0)["keep"].sum() == MAX_BYTES


def test_the_published_cut(make, data):
    write_tsv(data)
    dataset = make(max_len=16, max_tokens=8)
    assert read(dataset, "train")[1] == ("one text", "somethin", 0)
    assert dataset.load("train").fetch(np.array([0]), epoch=0, seed=0)["inputs_b"].shape == (1, 16)
    assert dataset.describe().notes[2:] == ("3 of 5 TRAIN pairs hold a text cut at 8 bytes",)
    assert dataset.split("test", KEY).notes[1:] == ("1 of 1 TEST pairs hold a text cut at 8 bytes",)


@pytest.mark.parametrize("count", [2, 3, 7, 50])
def test_the_drawn_pairs_are_balanced_on_either_side(count: int):
    pairs, labels = draw_pairs(Path("x"), count, 0)
    own = pairs[:, 1] == pairs[:, 0] + 1
    assert np.array_equal(own, labels == 1)
    for side in range(2):
        for label in range(2):
            assert sorted(pairs[labels == label][:, side].tolist()) == list(
                range(side, 2 * count, 2)
            )
    assert np.array_equal(draw_pairs(Path("x"), count, 0)[0], pairs)
    assert count < 4 or not np.array_equal(draw_pairs(Path("x"), count, 1)[0], pairs)


def test_the_stand_in_from_rows(make, data):
    standard(data)
    dataset = make()
    dataset.prepare()
    rows = read(dataset, "train")
    assert len(rows) == 18
    for first, second, label in rows:
        assert (first.split()[1] == second.split()[1]) == bool(label)
    assert dataset.describe().sizes == {"train": 18, "validation": 8, "trainval": 26}
    assert dataset.describe().notes == (
        "stand-in data: article and abstract of the same document or not, from "
        "data, not the AAN files",
    )
    assert len(read(dataset, "test")) == 10
    assert read(make(pair_seed=1), "train") != rows


def test_parts_of_one_size_have_other_pairs(make, data):
    write_jsonl(
        data,
        train=[document(n) for n in range(30)],
        val=[document(100 + n) for n in range(30)],
        test=[document(200 + n) for n in range(30)],
    )
    dataset = make()
    dataset.prepare()

    def partners(name: str) -> list[int]:
        return [int(second.split()[1]) % 100 for _, second, _ in read(dataset, name)]

    assert partners("train") != partners("validation")


def test_the_stand_in_from_folders(make, data):
    for name, numbers in (("train", range(4)), ("eval", range(10, 13)), ("test", range(20, 22))):
        for part in ("body", "summary"):
            (data / name / part).mkdir(parents=True)
            for number in numbers:
                (data / name / part / f"{number}.txt").write_text(f"{part} {number}")
    dataset = make(first="body", second="summary")
    dataset.prepare()
    assert sorted(row[:2] for row in read(dataset, "validation") if row[2]) == [
        (f"body {n}", f"summary {n}") for n in (10, 11, 12)
    ]
    (data / "train" / "summary" / "2.txt").unlink()
    with pytest.raises(
        DataError, match=r"body/2\.txt: there is no .*summary/2\.txt; a document needs both parts"
    ):
        make(first="body", second="summary").prepare()


def test_no_document_stands_in_two_splits(make, data):
    write_jsonl(
        data,
        train=[*map(document, range(5)), document(0)],
        val=[{**document(9), "abstract": "abstract 3"}, *map(document, range(10, 13))],
        test=[document(11), *map(document, range(20, 22))],
    )
    dataset = make()
    texts = [
        {text for row in read(dataset, name) for text in row[:2]}
        for name in ("train", "validation", "test")
    ]
    assert not texts[0] & texts[1] | texts[0] & texts[2] | texts[1] & texts[2]
    assert dataset.describe().notes[1:] == (
        "1 documents of train left out: their text stands in an earlier split or twice in this one",
        "1 documents of validation left out: their text stands in an earlier split "
        "or twice in this one",
    )
    assert dataset.split("test", KEY).notes == (
        "1 documents of test left out: their text stands in an earlier split or twice in this one",
    )
    assert len(read(dataset, "test")) == 4


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            TRAIN + "1.0\tP3\tP2\tthree\tits tw",
            r"train\.tsv:4: the line has no end: the file is cut off",
        ),
        (
            TRAIN + "1.0\tP3\tP2\tcut\n",
            r"train\.tsv:4: 4 columns, must be 5 \(label, id, id, text, text\); is the file",
        ),
        (TRAIN + "1.0\ta\tb\tc\td\te\n", r"train\.tsv:4: 6 columns, must be 5"),
        (TRAIN + "\n", r"train\.tsv:4: 1 columns, must be 5"),
        (
            TRAIN + "2.0\ta\tb\tc\td\n",
            r"train\.tsv:4: label '2\.0' must be 0 or 1, also as 0\.0 or 1\.0$",
        ),
        (TRAIN + "nan\ta\tb\tc\td\n", r"train\.tsv:4: label 'nan' must be 0 or 1"),
        (TRAIN + "yes\ta\tb\tc\td\n", r"train\.tsv:4: label 'yes' must be 0 or 1"),
        (TRAIN + "1.0\ta\tb\t\td\n", r"train\.tsv:4: column 4 is empty, a text is needed"),
        (TRAIN + "1.0\ta\tb\tc\t\n", r"train\.tsv:4: column 5 is empty, a text is needed"),
        (
            TRAIN.encode() + b"1.0\ta\tb\tc\xff\td\n",
            r"train\.tsv:4: byte 0xff at column 10 is not UTF-8; save the file as UTF-8$",
        ),
        ("", r"train\.tsv:1: the file is empty, pairs are needed$"),
        ("1.0\ta\tb\tc\td\n" * 2, r"train\.tsv: all 2 pairs have the label 1; TRAIN needs both$"),
    ],
)
def test_bad_rows(make, data, tmp_path, train: str | bytes, message: str):
    write_tsv(data, train=train)
    with pytest.raises(DataError, match=message):
        make().prepare()
    assert list((tmp_path / "root").rglob("*.npy")) == []
    write_tsv(data)
    assert len(read(make(), "train")) == 3


def test_other_bytes_on_request(make, data):
    write_tsv(data, train=b"1.0\ta\tb\tc\xff\td\n0.0\ta\tb\tc\te\n")
    found = batch(make(check_utf8=False), "train")
    assert found["inputs"][0, :3].tolist() == [ord("c") + 1, 256, 0]


def test_first_row_of_an_unknown_layout(make, data):
    write_tsv(data, prefix="", train="1\ta\tb\tc\n")
    with pytest.raises(
        DataError,
        match=r"train\.tsv:1: 4 columns, must be 3 \(label, text, text\) or 5 \(label, id",
    ):
        make().prepare()


def test_bad_documents(make, data):
    standard(data)
    with pytest.raises(
        DataError, match=r"train\.jsonl\.xz:1: no text under 'body'; the row holds \['abstract'"
    ):
        make(first="body").prepare()
    write_jsonl(data, val=[document(50)])
    with pytest.raises(
        DataError, match=r"val\.jsonl\.xz: 1 documents, two are needed to make a pair that does not"
    ):
        make().prepare()


def test_missing_and_mixed_files(make, data):
    with pytest.raises(
        DataError, match=r"data has none of new_aan_pairs\.train\.tsv, train\.tsv, train\.jsonl"
    ):
        make().prepare()
    standard(data)
    write_tsv(data)
    (data / "new_aan_pairs.eval.tsv").unlink()
    with pytest.raises(
        DataError, match=r"val\.jsonl\.xz: is of another layout \(jsonl\) than .*train\.tsv \(aan\)"
    ):
        make().prepare()
    with pytest.raises(DataError, match=r"dataset\.params\.path: nowhere is not a folder"):
        make(path="nowhere").prepare()


def test_parameters():
    with pytest.raises(ValidationError, match="max_tokens 20 is more than max_len 16"):
        Config(path="x", max_len=16, max_tokens=20)


@of_real_data
def test_articles_and_abstracts(tmp_path):
    path = str(REAL_DATA / "pubmed_sumpubmed")
    dataset = dataset_of("lra-retrieval", tmp_path, path=path, max_len=4096, max_tokens=4000)
    dataset.prepare()
    spec = dataset.describe()
    assert any("stand-in data: article and abstract" in note for note in spec.notes)
    assert spec.sizes["train"] > 12_000
    found = dataset.split("test", KEY).fetch(np.arange(32), epoch=0, seed=0)
    assert found["inputs"].shape == found["inputs_b"].shape == (32, 4096)
    assert not found["inputs"][:, 4000:].any()
    labels = dataset.load("train").inner.labels
    assert labels.mean() == 0.5

"""LRA Text: the three layouts, bytes as tokens, the sealed TEST, preparation, and bad files."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import subprocess
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from splits import KEY, REAL_DATA, batch, bytes_of, dataset_of, everything, of_real_data

from subquad.data.copies import check_copies
from subquad.errors import DataError
from subquad_datasets.text import Config

REVIEWS = {
    "neg": ["bad", "awful <br />", "no", "nöt good", "meh", "dull"],
    "pos": ["good", "great!", "fine\nlines", "very very good", "ok", "yes"],
}


def write_folders(root: Path, split: str, texts: dict[str, list[str]] = REVIEWS) -> None:
    for name, rows in texts.items():
        folder = root / split / name
        folder.mkdir(parents=True)
        for number, text in enumerate(rows):
            (folder / f"{number}_7.txt").write_bytes(text.encode())


def write_packed(
    root: Path, split: str, texts: dict[str, list[str]] = REVIEWS, opener=open, ending: str = ""
) -> None:
    root.mkdir(exist_ok=True)
    for name, rows in texts.items():
        with opener(root / f"{split}_{name}.jsonl{ending}", "wb") as stream:
            for number, text in enumerate(rows):
                stream.write(json.dumps({"id": number, "rating": 7, "text": text}).encode() + b"\n")


@pytest.fixture
def reviews(data) -> Path:
    test = {"neg": ["poor"], "pos": ["nice, and quite long too"]}
    write_folders(data / "aclImdb", "train")
    write_folders(data / "aclImdb", "test", test)
    return data / "aclImdb"


DATASET = ("lra-text", {"max_len": 16, "validation_fraction": 0.34})


def read(dataset, name: str) -> tuple[list[bytes], list[int]]:
    found = batch(dataset, name)
    return bytes_of(found), found["labels"].tolist()


ALL = [text.encode()[:16] for texts in REVIEWS.values() for text in texts]


def test_the_folders_of_aclimdb(make, reviews):
    (reviews / "train" / "unsup").mkdir()
    (reviews / "train" / "unsup" / "0_0.txt").write_text("no rating")
    (reviews / "train" / "urls_pos.txt").write_text("not a review")
    dataset = make()
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.target, spec.max_len, spec.vocab_size, spec.num_classes) == ("class", 16, 257, 2)
    assert spec.class_names == ("neg", "pos")
    assert spec.sizes == {"train": 8, "validation": 4, "trainval": 12}
    assert spec.notes == ("stand-in data: texts of data (6 neg, 6 pos), not the IMDb reviews",)
    assert read(dataset, "trainval") == (ALL, [0] * 6 + [1] * 6)


@pytest.mark.parametrize(("opener", "ending"), [(open, ""), (lzma.open, ".xz"), (gzip.open, ".gz")])
def test_packed_files(make, data, opener, ending):
    write_packed(data, "train", opener=opener, ending=ending)
    assert read(make(), "trainval") == (ALL, [0] * 6 + [1] * 6)


def test_a_test_split_of_another_size_is_labelled_when_it_is_opened(make, reviews, monkeypatch):
    monkeypatch.setattr("subquad_datasets.text.dataset._IMDB", {"neg": 6, "pos": 6})
    assert make().describe().notes == ()
    assert make(max_len=40).split("test", KEY).notes == (  # type: ignore[attr-defined]
        "stand-in data: TEST: texts of data (1 neg, 1 pos), not the IMDb reviews",
    )


def test_the_manifest_holds_one_sum_of_all_texts(make, reviews, tmp_path):
    make().describe()
    (manifest,) = (tmp_path / "root").rglob("manifest.json")
    listed = subprocess.run(
        [
            "sha256sum",
            *sorted(
                str(path.relative_to(reviews / "train")) for path in reviews.glob("train/*/*.txt")
            ),
        ],
        cwd=reviews / "train",
        capture_output=True,
        check=True,
    ).stdout
    assert json.loads(manifest.read_text())["facts"]["sources"] == {
        "train: 12 files": hashlib.sha256(listed).hexdigest()
    }


def test_texts_of_blanks_are_counted(make, reviews):
    (reviews / "train" / "pos" / "1_7.txt").write_text(" \n\t")
    assert make().describe().notes[1:] == ("1 TRAIN texts hold blanks only",)


def test_endings_in_capitals(make, reviews):
    (reviews / "train" / "neg" / "0_7.txt").rename(reviews / "train" / "neg" / "0_7.TXT")
    assert read(make(), "trainval")[0] == ALL


def test_any_folder_of_texts(make, data):
    write_folders(data, "train", {"b": ["2", "3"], "a": ["1", "1"], "c": ["4", "5"]})
    dataset = make()
    assert dataset.describe().class_names == ("a", "b", "c")
    assert read(dataset, "trainval") == ([b"1", b"1", b"2", b"3", b"4", b"5"], [0, 0, 1, 1, 2, 2])


def test_tokens_are_bytes_and_one(make, reviews):
    found = make().load("trainval").fetch(np.array([3, 0]), epoch=0, seed=0)
    assert found["inputs"].tolist()[0] == [byte + 1 for byte in "nöt good".encode()] + [0] * 7
    assert found["inputs"].shape == (2, 16)


def test_longer_texts_are_cut_and_counted(make, reviews):
    dataset = make(max_len=12)
    assert dataset.describe().notes[1:] == ("1 of 12 TRAIN texts cut at 12 bytes",)
    assert read(dataset, "trainval")[0] == [text[:12] for text in ALL]
    assert dataset.split("test", KEY).notes == ("1 of 2 TEST texts cut at 12 bytes",)  # type: ignore[attr-defined]


def test_the_published_cut_is_shorter_than_the_padded_length(make, reviews):
    dataset = make(max_len=16, max_tokens=4)
    found = batch(dataset, "train")
    assert found["inputs"].shape == (8, 16)
    assert not found["inputs"][:, 4:].any()
    assert not found["keep"][:, 4:].any()
    assert read(dataset, "trainval")[0] == [text[:4] for text in ALL]
    assert dataset.describe().notes[1:] == ("5 of 12 TRAIN texts cut at 4 bytes",)


def test_validation_is_a_stratified_part_of_train(make, reviews):
    train, validation = read(make(), "train"), read(make(), "validation")
    assert sorted(train[0] + validation[0]) == sorted(ALL)
    assert validation[1] == [0, 0, 1, 1]
    assert read(make(), "validation") == validation
    assert read(make(split_seed=1), "validation") != validation


def test_a_folder_with_train_alone_is_refused_before_training(make, data):
    write_folders(data, "train")
    assert len(make().load("train")) == 8
    with pytest.raises(
        DataError, match=r"data has neither test/<class>/\*\.txt nor test_<class>\.jsonl"
    ):
        make().prepare()


def test_other_classes_in_test(make, reviews):
    (reviews / "test" / "pos").rename(reviews / "test" / "better")
    with pytest.raises(
        DataError, match=r"TEST has the classes \['better', 'neg'\], TRAIN has \['neg', 'pos'\]"
    ):
        make().split("test", KEY)


def test_a_class_with_one_text_works_for_the_fixed_protocol_only(make, data):
    write_folders(data, "train", {"a": ["1"], "b": ["2", "3"]})
    assert make().describe().sizes == {"trainval": 3}
    with pytest.raises(DataError, match=r"class 0 has 1 training sample: too few"):
        make().load("train")


ROW = b'{"text": "fine"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROW + b"{", r"train_pos\.jsonl:2: not JSON: Expecting property name"),
        (
            ROW + b'{"text": "\xff"}\n',
            r"train_pos\.jsonl:2: not JSON: 'utf-8' codec can't decode byte 0xff",
        ),
        (ROW + b"[1]\n", r"train_pos\.jsonl:2: a row must be a JSON object, not list"),
        (
            ROW + b'{"review": "x"}\n',
            r"train_pos\.jsonl:2: no text under 'text'; the row holds \['review'\]",
        ),
        (
            ROW + b'{"text": ""}\n',
            r"train_pos\.jsonl:2: no text under 'text'; the row has \"\" there",
        ),
        (ROW + b'{"text": 5}\n', r"train_pos\.jsonl:2: no text under 'text'; the row has 5 there"),
        (b'{"text": "\\ud800"}\n', r"train_pos\.jsonl:1: 'text' holds half a surrogate pair"),
        (b"\xef\xbb\xbf" + ROW, r"train_pos\.jsonl:1: starts with a byte order mark"),
        (b"[" * 100_000, r"train_pos\.jsonl:1: not JSON: maximum recursion"),
        (b"", r"train_pos\.jsonl: no texts of class pos$"),
    ],
)
def test_bad_rows(make, data, content: bytes, message: str):
    write_packed(data, "train")
    (data / "train_pos.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        make().describe()


def test_a_cut_off_compressed_file(make, data):
    write_packed(data, "train", opener=lzma.open, ending=".xz")
    path = data / "train_neg.jsonl.xz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(
        DataError, match=r"train_neg\.jsonl\.xz:\d+: the compressed file is damaged or cut off"
    ):
        make().prepare()


def test_what_cannot_be_found(make, data):
    data.rmdir()
    with pytest.raises(DataError, match=r"dataset\.params\.path: .*data is not a folder"):
        make().prepare()
    (data / "train" / "pos").mkdir(parents=True)
    with pytest.raises(DataError, match=r"train/pos: no \*\.txt files"):
        make().prepare()
    (data / "train" / "pos").rmdir()
    with pytest.raises(
        DataError, match=r"has neither train/<class>/\*\.txt nor train_<class>\.jsonl"
    ):
        make().prepare()


def test_files_that_are_there_twice(make, data):
    write_packed(data, "train")
    write_packed(data, "train", opener=gzip.open, ending=".gz")
    with pytest.raises(DataError, match="class neg of train is there twice, plain and compressed"):
        make().prepare()
    (data / "train_neg.jsonl.gz").unlink()
    (data / "train_pos.jsonl.gz").unlink()
    write_folders(data, "train")
    with pytest.raises(
        DataError, match=r"train is there twice, as folders of texts and as train_neg\.jsonl"
    ):
        make().prepare()


def test_an_empty_text(make, reviews):
    (reviews / "train" / "neg" / "2_7.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"neg/2_7\.txt:1: the text is empty"):
        make().prepare()


def test_files_of_a_user(make, reviews, tmp_path):
    dataset, path = make(), tmp_path / "new.jsonl"
    path.write_text('{"text": "good", "label": "pos"}\n{"text": "bad"}\n')
    found = everything(dataset.open_file(path, labelled=False))
    assert found["labels"].tolist() == [-1, -1]
    assert bytes_of(found)[1] == b"bad"
    with pytest.raises(DataError, match=r"new\.jsonl:2: no text under 'label'"):
        dataset.open_file(path, labelled=True)
    path.write_text('{"text": "good", "label": "pos"}\n{"text": "bad", "label": "neg"}\n')
    split = dataset.open_file(path, labelled=True)
    assert split.labels.tolist() == [1, 0]
    assert dataset.reference_scores(split).keys() == {"majority"}
    path.write_text('{"text": "good", "label": "poss"}\n')
    with pytest.raises(
        DataError,
        match=r"new\.jsonl:1: label 'poss' is no class of TRAIN: neg, pos; did you mean 'pos'\?",
    ):
        dataset.open_file(path, labelled=True)
    path.write_text("")
    with pytest.raises(DataError, match=r"new\.jsonl:1: the file is empty"):
        dataset.open_file(path, labelled=False)
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read: No such file"):
        dataset.open_file(tmp_path / "none.jsonl", labelled=False)


def test_parameters():
    with pytest.raises(
        ValidationError, match="max_tokens 20 is more than max_len 16: use max_tokens 16 or less"
    ):
        Config(path="x", max_len=16, max_tokens=20)
    assert Config(path="x").cut == 4096


@of_real_data
def test_the_imdb_reviews(tmp_path):
    path = str(REAL_DATA / "imdb")
    dataset = dataset_of("lra-text", tmp_path, path=path, max_len=1024, max_tokens=1000)
    dataset.prepare()
    spec = dataset.describe()
    assert spec.sizes == {"train": 22_501, "validation": 2_499, "trainval": 25_000}
    copies = ("123 of 25,000 TEST samples are exact copies of training samples",)
    assert check_copies(dataset, dataset.prepared_test(), validation=True) == copies
    assert spec.class_names == ("neg", "pos")
    assert not any("stand-in" in note for note in spec.notes)
    test = dataset.split("test", KEY)
    found = test.fetch(np.arange(12_490, 12_510), epoch=0, seed=0)
    assert len(test) == 25_000
    assert found["labels"].tolist() == [0] * 10 + [1] * 10
    assert found["inputs"].shape == (20, 1024)
    assert not found["keep"][:, 1000:].any()


@pytest.mark.parametrize("place", ["train_odd.jsonl", "test_neg.jsonl.gz"])
def test_a_packed_class_that_is_a_link_to_nowhere_is_refused(make, tmp_path, place: str):
    for split in ("train", "test"):
        write_packed(tmp_path, split)
    (tmp_path / place).symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=rf"{place}: is a link that leads nowhere"):
        make(path=str(tmp_path)).prepare()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbfgood", r"0_7\.txt:1: starts with a byte order mark"),
        (b"good\nve\0ry", r"0_7\.txt:2: NUL byte at column 3; the file is binary or damaged"),
        (b"good\nv\xe9ry", r"0_7\.txt:2: byte 0xe9 at column 2 is not UTF-8"),
    ],
)
def test_what_is_no_text_is_named(make, tmp_path, content: bytes, message: str):
    for split in ("train", "test"):
        write_folders(tmp_path, split)
    (tmp_path / "train/pos/0_7.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        make(path=str(tmp_path)).prepare()

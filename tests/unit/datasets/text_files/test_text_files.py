"""Texts of one's own: layouts, tokenizers, splits, files of users, and what is refused with its
line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from splits import KEY, batch, texts_of

from subquad.data import NO_LABEL
from subquad.data.copies import check_copies
from subquad.errors import DataError
from subquad_datasets.text_files import PLUGIN, Config

TEXTS = {
    "train": [
        ("good film", "pos"),
        ("bad film", "neg"),
        ('so "fine",\nindeed', "pos"),
        ("dull", "neg"),
        ("grand", "pos"),
    ],
    "test": [("good", "pos"), ("worse", "neg")],
}


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "reviews"
    folder.mkdir()
    return folder


DATASET = ("text-files", {"max_len": 20, "validation_fraction": 0.4})


def read(dataset, name: str) -> list[tuple[str, str]]:
    found, classes = batch(dataset, name), dataset.describe().class_names
    labels = [classes[label] for label in found["labels"]]
    return list(zip(texts_of(dataset, found), labels, strict=True))


def write_json(
    folder: Path, fields: tuple[str, str] = ("text", "label"), texts: Any = TEXTS
) -> None:
    for part, rows in texts.items():
        lines = [json.dumps(dict(zip(fields, row, strict=True))) for row in rows]
        (folder / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_csv(folder: Path) -> None:
    for part, rows in TEXTS.items():
        lines = ['"{}",{}\n'.format(text.replace('"', '""'), label) for text, label in rows]
        (folder / f"{part}.csv").write_text("text,label\n" + "".join(lines))


def write_folders(folder: Path) -> None:
    for part, rows in TEXTS.items():
        for number, (text, label) in enumerate(rows):
            (folder / part / label).mkdir(parents=True, exist_ok=True)
            (folder / part / label / f"{number}.txt").write_text(text)


@pytest.mark.parametrize("write", [write_json, write_csv, write_folders])
def test_every_layout_gives_the_same_texts(make, data, write: Callable[[Path], None]):
    write(data)
    dataset = make()
    dataset.prepare()
    for name in ("train", "test"):
        assert sorted(read(dataset, "trainval" if name == "train" else "test")) == sorted(
            TEXTS[name]
        )
    assert {label for _, label in read(dataset, "validation")} == {"neg", "pos"}
    assert dataset.describe().class_names == ("neg", "pos")


@pytest.mark.parametrize("tokenizer", ["byte", "bpe", "word"])
def test_tokenizers_are_learnt_on_train(make, data, tokenizer: str):
    write_json(data)
    dataset = make(tokenizer=tokenizer, vocab_size=None if tokenizer == "byte" else 300)
    spec = dataset.describe()
    assert spec.vocab_size == len(dataset.tokenizer.pieces)
    found = read(dataset, "test")
    assert found[0][0].strip() == "good"
    assert found[1][0].strip() == ("<unk>" if tokenizer == "word" else "worse")


def test_a_given_validation_part_is_the_validation_part(make, data):
    held = [("fair", "pos"), ("poor", "neg")]
    write_json(data, texts={**TEXTS, "validation": held})
    dataset = make()
    assert read(dataset, "validation") == held
    assert read(dataset, "train") == TEXTS["train"]
    assert dataset.describe().sizes == {"train": 5, "validation": 2, "trainval": 7}


def test_names_of_columns_and_numbers_as_classes(make, data):
    rows = [("one", 1), ("two", 2), ("uno", 1), ("due", 2)]
    write_json(data, ("said", "count"), {"train": rows, "test": [rows[0], ("six", 1)]})
    dataset = make(text="said", labels="count")
    assert read(dataset, "trainval") == [(text, str(count)) for text, count in rows]
    assert dataset.reference_scores(dataset.split("test", KEY)) == {"majority": 1.0}
    assert check_copies(dataset, dataset.prepared_test(), validation=False) == (
        "1 of 2 TEST samples are exact copies of training samples",
    )


def test_long_texts_are_cut_and_counted(make, data):
    write_json(data)
    assert make(max_len=8).describe().notes == ("2 of 5 TRAIN texts cut at 8 tokens",)
    labelled = Config(path=str(data), tokenizer="bpe", vocab_size=400)
    assert PLUGIN.label(labelled) == "reviews-bpe400"


def test_files_of_a_user(make, data, tmp_path):
    write_json(data)
    dataset, new = make(), tmp_path / "new.csv"
    new.write_text("text\nbad\ngood\n")
    assert dataset.open_file(new, labelled=False).labels.tolist() == [NO_LABEL] * 2
    new.write_text("label,text\nneg,bad\npos,good\n")
    assert dataset.open_file(new, labelled=True).labels.tolist() == [0, 1]
    path = tmp_path / "one.txt"
    path.write_text("fine")
    assert len(dataset.open_file(path, labelled=False)) == 1
    with pytest.raises(
        DataError, match=r"one\.txt: a text has no class; give a \.csv or \.jsonl file"
    ):
        dataset.open_file(path, labelled=True)


CLASS = "class under 'label', a text or a whole number;"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", "text,label\na,x\nb\n", r"train\.csv:3: 1 values, the header has 2 columns"),
        (
            "train.csv",
            "text,label\na,x\n,x\n",
            r"train\.csv:3: no text under 'text'; the row has \"\" there",
        ),
        ("train.csv", 'text,label\n"a\nb",x\nc,\n', r"train\.csv:4: no class under 'label'"),
        ("train.csv", 'text,label\n"a"b,x\n', r"train\.csv:2: not CSV"),
        (
            "train.tsv",
            'label\ttext\nx\t"a b\ny\tc"\nx\td\n',
            r"train\.tsv:2: a quote opens a value that holds tabs and goes on to line 3; a value "
            "that begins with a quote ends with one, and has each in it twice$",
        ),
        ("train.tsv", 'text\tlabel\n"a\tx\nb\ty\n', r"train\.tsv:2: not CSV, .*ends with one, and"),
        (
            "train.csv",
            "text,labels\na,x\n",
            r"train\.csv:2: no class under 'label', .*did you mean 'labels'\?",
        ),
        ("train.csv", "text,label\n", r"train\.csv:1: no rows"),
        ("train.csv", "", r"train\.csv:1: the file is empty"),
        (
            "train.jsonl",
            '{"text": "a", "label": "x"}\n{"text": 3, "label": "x"}\n',
            r"train\.jsonl:2: no text under 'text'; the row has 3 there, a whole number$",
        ),
        *(
            ("train.jsonl", f'{{"text": "a", "label": {label}}}\n', rf"train\.jsonl:1: no {told}$")
            for label, told in {
                "true": f"{CLASS} the row has true there, a truth value",
                "1.0": f"{CLASS} the row has 1.0 there, a number with a fraction",
                "null": f"{CLASS} the row has null there, no value",
                '["x"]': rf"{CLASS} the row has \[\"x\"\] there, a list",
                '{"x": 1}': rf"{CLASS} the row has {{\"x\": 1}} there, an object",
            }.items()
        ),
        ("train.jsonl", '{"text": "a\\ud83d"}\n', r"train\.jsonl:1: 'text' holds half a surrogate"),
        ("train.jsonl", '{"\\udc00": 1}\n', r"train\.jsonl:1: '\\udc00' holds half a surrogate"),
        ("train.jsonl", '{"more": [["\\uDFFF"]]}\n', r"train\.jsonl:1: 'more' holds half a"),
        ("train.jsonl", "no json\n", r"train\.jsonl:1: not JSON"),
        (
            "test.jsonl",
            '{"text": "a", "label": "po"}\n',
            r"test\.jsonl:1: class 'po' is none of TRAIN: neg, pos; did",
        ),
    ],
)
def test_what_is_refused(make, data, name: str, content: str, message: str):
    write_json(data)
    (data / name).with_suffix(".jsonl").unlink()
    (data / name).write_text(content)
    with pytest.raises(DataError, match=message):
        make().prepare()


def test_missing_and_double_parts(make, data):
    with pytest.raises(
        DataError, match=r"reviews has no train/<class>/\*\.txt, train\.csv or train\.jsonl"
    ):
        make().prepare()
    write_json(data)
    write_csv(data)
    with pytest.raises(DataError, match=r"train is there twice, as train\.csv and train\.jsonl"):
        make().prepare()
    with pytest.raises(DataError, match=r"nowhere is not a folder"):
        make(path=str(data / "nowhere")).prepare()
    with pytest.raises(
        ValidationError, match="text and labels are both 'text': give each a column"
    ):
        Config(path="x", labels="text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"text,label\ngood,pos\nbad,neg\nfine,Pos\n",
            r"train\.csv:4: class 'Pos' looks like 'pos'",
        ),
        (b'text,label\ngood,pos\n"bad,neg\nfine,pos\n', r"train\.csv:3: not CSV, from this row on"),
        (
            b"text,label,label\ngood,pos,x\n",
            r"train\.csv:1: column name 'label' is empty or there twice",
        ),
        (b"text,label\ngo\0od,pos\n", r"train\.csv:2: NUL byte at column 3"),
    ],
)
def test_a_file_is_not_read_in_part(make, data, content: bytes, message: str):
    write_csv(data)
    (data / "train.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        make().describe()


def test_blanks_around_a_class_make_no_other_class(make, data):
    write_csv(data)
    (data / "train.csv").write_text("text,label\ngood,pos\nbad, neg\nfine,pos \nworse,neg\n")
    assert make().describe().class_names == ("neg", "pos")


def test_a_field_that_is_there_twice_is_refused(make, data):
    write_json(data)
    (data / "train.jsonl").write_text('{"text": "a", "label": "x", "text": "b"}\n')
    with pytest.raises(DataError, match=r"train\.jsonl:1: not JSON: 'text' is there twice"):
        make().describe()


@pytest.mark.parametrize("place", ["train/pos/gone.txt", "train/gone", "validation.jsonl"])
def test_a_link_that_leads_nowhere_is_refused(make, data, place: str):
    for part in ("train", "test"):
        for name in ("pos", "neg"):
            (data / part / name).mkdir(parents=True)
            (data / part / name / "0.txt").write_text(f"{part} {name}")
    (data / place).symlink_to(data / "nowhere")
    with pytest.raises(DataError, match=rf"{place}: is a link that leads nowhere"):
        make().describe()

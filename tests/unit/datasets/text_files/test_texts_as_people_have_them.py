"""Texts as editors and spreadsheets write them: marks, encodings, separators, line ends."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from splits import batch, texts_of

from subquad.errors import DataError

Write = Callable[[Path, str], None]
TEXTS = [("schön, klar", "gut"), ("trübe; öde", "mäßig"), ("a\ttab", "gut"), ("naja", "mäßig")]


DATASET = ("text-files", {"max_len": 30, "validation_fraction": 0.5})


def read(dataset) -> list[tuple[str, str]]:
    found, classes = batch(dataset, "trainval"), dataset.describe().class_names
    labels = [classes[label] for label in found["labels"]]
    return list(zip(texts_of(dataset, found), labels, strict=True))


def tabular(name: str, separator: str, end: str) -> Write:
    def write(folder: Path, encoding: str) -> None:
        rows = [("text", "label"), *TEXTS]
        content = "".join(f'"{text}"{separator}{label}{end}' for text, label in rows)
        for part in ("train", "test"):
            (folder / f"{part}.{name}").write_bytes(content.encode(encoding))

    return write


def write_json(folder: Path, encoding: str) -> None:
    rows = [{"text": text, "label": label} for text, label in TEXTS]
    content = "".join(f"{json.dumps(row, ensure_ascii=False)}\r\n" for row in rows)
    for part in ("train", "test"):
        (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(content.encode(encoding)))


def write_folders(folder: Path, encoding: str) -> None:
    for part in ("train", "test"):
        for number, (text, label) in enumerate(TEXTS):
            (folder / part / label).mkdir(parents=True, exist_ok=True)
            (folder / part / label / f"{number}.txt").write_bytes(text.encode(encoding))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    "write",
    [
        write_json,
        write_folders,
        tabular("csv", ",", "\n"),
        tabular("csv", ";", "\r\n"),
        tabular("csv", "\t", "\r"),
        tabular("tsv", "\t", "\n"),
    ],
)
def test_every_form_gives_the_same_texts(make, data, write: Write, encoding: str):
    write(data, encoding)
    assert sorted(read(make())) == sorted(TEXTS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "train/gut/0.txt",
            "eins\nschön".encode("cp1252"),
            r"0\.txt:2: byte 0xf6 at column 4 is not UTF-8; save the file as UTF-8$",
        ),
        (
            "train/gut/0.txt",
            "eins\nzwei\nschön".encode("utf-16")[:-1],
            r"0\.txt:3: not UTF-16-LE, as its byte order mark says \(truncated data\); save",
        ),
        ("train/gut/0.txt", "ab".encode("utf-16-le"), r"0\.txt:1: NUL byte at column 2; .*UTF-16"),
        ("train/gut/0.txt", b"\xef\xbb\xbf", r"0\.txt:1: the text is empty$"),
        ("train/gut/0.txt", b"\xff\xfe", r"0\.txt:1: the text is empty$"),
    ],
)
def test_what_is_not_said_beyond_doubt_is_one_line(make, data, name, content, message):
    write_folders(data, "utf-8")
    (data / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        make().describe()

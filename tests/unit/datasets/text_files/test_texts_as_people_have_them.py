"""Texts as editors and spreadsheets write them: marks, encodings, separators, line ends."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from subquad.errors import DataError
from subquad_datasets.text_files import Config
from subquad_datasets.text_files.dataset import TextFiles

Write = Callable[[Path, str], None]
TEXTS = [("schön, klar", "gut"), ("trübe; öde", "mäßig"), ("a\ttab", "gut"), ("naja", "mäßig")]


def read(folder: Path, root: Path) -> list[tuple[str, str]]:
    dataset = TextFiles(Config(path=str(folder), max_len=30, validation_fraction=0.5), root)
    split, spec = dataset.load("trainval"), dataset.describe()
    batch = split.fetch(np.arange(len(split)), epoch=0, seed=0)
    assert spec.text is not None
    return [
        (spec.text(row[keep].tolist()), spec.class_names[label])
        for row, keep, label in zip(batch["inputs"], batch["keep"], batch["labels"], strict=True)
    ]


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
def test_every_form_gives_the_same_texts(tmp_path: Path, write: Write, encoding: str):
    (tmp_path / "own").mkdir()
    write(tmp_path / "own", encoding)
    assert sorted(read(tmp_path / "own", tmp_path / "root")) == sorted(TEXTS)


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
def test_what_is_not_said_beyond_doubt_is_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
):
    (tmp_path / "own").mkdir()
    write_folders(tmp_path / "own", "utf-8")
    (tmp_path / "own" / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "own", tmp_path / "root")

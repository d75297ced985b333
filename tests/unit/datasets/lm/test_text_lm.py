"""Language modelling on text files: layouts, windows, each token scored once, bad input, what is
learnt where.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from splits import KEY, REAL_DATA, dataset_of, of_real_data

from subquad.data import NO_LABEL, Split
from subquad.errors import DataError
from subquad_datasets.lm import PLUGIN, Config
from subquad_datasets.lm.windows import Windows
from subquad_datasets.packed import PackedColumn, PackedWriter

TEXT = "".join(f"line {number} of a text.\n" for number in range(200))


DATASET = ("text-lm", {"context": 8})


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name.replace('_', '.')}").write_bytes(text.encode())


def window(size: int, context: int, stride: int | None, folder: Path) -> Windows:
    with PackedWriter(folder, "text", np.uint16, labels=False) as writer:
        writer.append(np.arange(2, size + 5))
    return Windows(PackedColumn(folder, "text"), 3, size + 3, context, stride)


def scored(split: Split, text: Any) -> str:
    """The text of all labels, in order."""
    labels = split.fetch(np.arange(len(split)), epoch=0, seed=0)["labels"]
    return text(labels[labels != NO_LABEL])


@pytest.mark.parametrize("size", [5, 7, 10, 23])
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_every_token_is_scored_once_with_enough_before_it(tmp_path, size: int, stride: int):
    split = window(size, 5, stride, tmp_path)
    batch = split.fetch(np.arange(len(split)), epoch=3, seed=4)
    labels, inputs = batch["labels"], batch["inputs"]
    real = labels != NO_LABEL
    assert labels[real].tolist() == list(range(5, size + 5))
    assert inputs[0, 0] == 1
    assert (labels[:, :-1] == inputs[:, 1:])[real[:, :-1]].all()
    assert batch["keep"].all()
    assert all(row.argmax() >= 5 - stride for row in real[1:])


@pytest.mark.parametrize("size", [5, 9, 10, 23, 50])
def test_windows_to_train_on_move_with_seed_and_epoch(tmp_path, size: int):
    split = window(size, 5, None, tmp_path)
    every = np.arange(len(split))
    firsts = set()
    for epoch in range(40):
        batch = split.fetch(every, epoch=epoch, seed=7)
        labels = batch["labels"]
        assert labels.ravel().tolist() == list(range(labels[0, 0], labels[0, 0] + 5 * len(split)))
        assert 5 <= labels.min() <= labels.max() < size + 5
        assert (labels[:, :-1] == batch["inputs"][:, 1:]).all()
        assert (batch["inputs"][0, 0] == 1) == (labels[0, 0] == 5)
        again = split.fetch(every[:1], epoch=epoch, seed=7)
        assert (again["labels"] == labels[:1]).all()
        firsts.add(int(labels[0, 0]))
    assert firsts == set(range(5, 6 + size - 5 * len(split)))
    assert split.fetch(every, epoch=0, seed=8)["labels"].shape == (len(split), 5)


def test_one_file_is_cut_by_position(make, tmp_path):
    write(tmp_path / "data", book_txt=TEXT)
    whole = []
    for path in ("data", "data/book.txt"):
        dataset = make(path=str(tmp_path / path), test_fraction=0.1, validation_fraction=0.2)
        spec = dataset.describe()
        folder = dataset.load("train").column
        assert spec.text is not None
        assert spec.text(folder.tokens) == TEXT[: len(folder.tokens)]
        test, validation = dataset.split("test", KEY), dataset.load("validation")
        parts = [spec.text(dataset.load("train").column.tokens[: dataset.load("train").last])]
        parts += [scored(split, spec.text) for split in (validation, test)]
        assert "".join(parts) == TEXT
        assert [len(part) / len(TEXT) for part in parts] == pytest.approx([0.7, 0.2, 0.1], abs=0.01)
        assert all(part.endswith("\n") for part in parts)
        whole.append((spec.sizes, spec.vocab_size, spec.end_token, spec.notes))
    assert whole[0] == whole[1]
    assert whole[0][1:] == (258, 1, ())
    assert len(dataset.load("trainval")) == whole[0][0]["trainval"] > whole[0][0]["train"]


@pytest.mark.parametrize(
    "names",
    [
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("train.txt.xz", "val.txt.gz", "test.txt.bz2"),
        ("train.raw", "dev.raw", "test.raw"),
    ],
)
def test_a_file_for_each_split(make, tmp_path, names: tuple[str, ...]):
    packs = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}
    texts = [f"{part}: {TEXT[:300]}" for part in ("one", "two", "three")]
    for name, text in zip(names, texts, strict=True):
        pack = packs.get(Path(name).suffix, bytes)
        (tmp_path / "data" / name).write_bytes(pack(text.encode()))
    dataset = make()
    dataset.prepare()
    text = dataset.describe().text
    assert [scored(dataset.split(name, KEY), text) for name in ("validation", "test")] == texts[1:]
    assert text(dataset.load("train").column.tokens) == texts[0] + texts[1]


def test_files_of_one_text_are_joined_by_the_end_token(make, tmp_path):
    write(tmp_path / "data", a_txt=TEXT, b_txt=TEXT.upper())
    tokens = make().load("train").column.tokens
    assert (tokens == 1).sum() == 1
    assert np.flatnonzero(tokens == 1)[0] == len(TEXT)


def test_the_tokenizer_is_learnt_on_train_alone(make, tmp_path):
    write(
        tmp_path / "data",
        train_txt="a b b\n" * 20,
        valid_txt="b c zebra\n" * 9,
        test_txt="a zebra\n" * 9,
    )
    words = make(tokenizer="word")
    spec = words.describe()
    assert spec.vocab_size == 6
    assert spec.token_bytes == ()
    assert spec.notes == ("18 of 36 validation tokens are <unk>",)
    assert words.split("test", KEY).notes == ("9 of 27 test tokens are <unk>",)
    pieces = set(make(tokenizer="bpe", vocab_size=300).describe().text.pieces)
    assert b"b" in pieces
    assert b" zebra" not in pieces
    assert not any(len(piece) > 1 and b"z" in piece for piece in pieces)


def test_unigram_by_hand(make, tmp_path):
    write(tmp_path / "data", train_txt="aab\n" * 5, valid_txt="abb\n" * 3, test_txt="abc\n" * 3)
    dataset = make()
    counts = Counter(dict.fromkeys(range(258), 1))
    counts.update(byte + 2 for byte in b"aab\n" * 5 + b"abb\n" * 3)
    nats = [math.log(counts.total() / counts[byte + 2]) for byte in b"abc\n" * 3]
    scores = dataset.reference_scores(dataset.split("test", KEY))["unigram"]
    assert scores == pytest.approx(
        {"perplexity": math.exp(sum(nats) / 12), "bits_per_byte": sum(nats) / 12 / math.log(2)}
    )
    assert dataset.describe().token_bytes[:3] == (0, 0, 1)


def test_files_of_a_user(make, tmp_path):
    write(tmp_path / "data", book_txt=TEXT)
    dataset = make()
    (tmp_path / "other.txt").write_text("A text to score,\nof two lines")
    (tmp_path / "starts.txt").write_text("ab\n\nthe start of a text\n")
    split = dataset.open_file(tmp_path / "other.txt", labelled=True)
    assert scored(split, dataset.describe().text) == "A text to score,\nof two lines"
    batch = dataset.open_file(tmp_path / "starts.txt", labelled=False).fetch(
        np.arange(3), epoch=0, seed=0
    )
    assert batch["keep"].sum(axis=1).tolist() == [3, 1, 8]
    assert batch["inputs"][:, 0].tolist() == [1, 1, ord("f") + 2]
    assert dataset.describe().text(batch["inputs"][2]) == "f a text"
    assert (batch["labels"] == NO_LABEL).all()
    (tmp_path / "bad.txt").write_bytes(b"good\nb\xffd\n")
    for labelled in (True, False):
        with pytest.raises(DataError, match=r"bad\.txt:2: byte 0xff .*is not UTF-8"):
            dataset.open_file(tmp_path / "bad.txt", labelled=labelled)
        with pytest.raises(DataError, match=r"no\.txt: cannot be read: No such file"):
            dataset.open_file(tmp_path / "no.txt", labelled=labelled)


def test_bad_input(make, tmp_path):
    data = tmp_path / "data"
    with pytest.raises(DataError, match=r"dataset\.params\.path: .*data has no text files"):
        make().prepare()
    with pytest.raises(DataError, match=r"dataset\.params\.path: .*nowhere is not there"):
        make(path=str(tmp_path / "nowhere")).prepare()
    write(data, train_txt=TEXT, valid_txt="tiny")
    with pytest.raises(
        DataError, match=r"has train\.txt, valid\.txt, but no file for test, such as test\.txt"
    ):
        make().prepare()
    write(data, test_txt="")
    with pytest.raises(DataError, match=r"test\.txt:1: the file is empty"):
        make(context=2).prepare()
    with pytest.raises(DataError, match=r"test\.txt:1: the file is empty"):
        make(path=str(data / "test.txt")).prepare()
    with pytest.raises(
        DataError,
        match=r"dataset\.params\.context: validation has 4 tokens, fewer than a window of 8",
    ):
        make().describe()
    (data / "train.txt").write_bytes(b"\xef\xbb\xbfa\n")
    with pytest.raises(DataError, match=r"train\.txt:1: starts with a byte order mark"):
        make().describe()
    (data / "train.txt").write_bytes(b"fine\n" * 3 + b"x" * 70_000 + b"\xc3")
    for tokenizer in ("byte", "bpe", "word"):
        with pytest.raises(DataError, match=r"train\.txt:4: byte 0xc3 is not UTF-8"):
            make(tokenizer=tokenizer).describe()
    (data / "train.txt").rename(data / "train.txt.xz")
    with pytest.raises(
        DataError, match=r"train\.txt\.xz:1: the compressed file is damaged or cut off"
    ):
        make().describe()
    assert not list((tmp_path / "root").rglob("*.part"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"context": 8, "stride": 9}, "stride 9 is more than context 8: some tokens had no score"),
        (
            {"path": "x", "test_fraction": 0.5, "validation_fraction": 0.5},
            "leave nothing to train on",
        ),
        (
            {"vocab_size": 400},
            "vocab_size 400 has no effect with tokenizer byte: leave it at null, "
            "or use tokenizer other than byte",
        ),
    ],
)
def test_parameters(given: dict[str, Any], told: str):
    with pytest.raises(ValidationError, match=told):
        Config.model_validate(given)


def test_tables_tell_texts_and_tokenizers_apart():
    configs = [{}, {"path": "a/input.txt.xz"}, {"path": "wiki", "tokenizer": "word"}]
    configs += [{"path": "x.txt", "tokenizer": "bpe", "vocab_size": 512}]
    labels = [PLUGIN.label(Config.model_validate(given)) for given in configs]
    assert labels == ["text-lm", "input", "wiki-word", "x-bpe512"]


@pytest.mark.ci
def test_another_process_makes_the_same_bytes(make, tmp_path):
    write(tmp_path / "data", book_txt=TEXT)
    here = make(tokenizer="bpe", vocab_size=300)
    here.prepare()
    config = json.dumps(
        {"path": str(tmp_path / "data"), "context": 8, "tokenizer": "bpe", "vocab_size": 300}
    )
    code = (
        "import sys; from pathlib import Path; from subquad_datasets.lm import Config\n"
        "from subquad_datasets.lm.dataset import TextLm\n"
        f"TextLm(Config.model_validate_json({config!r}), Path(sys.argv[1])).prepare()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "again"], check=True, env={**os.environ})
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.npy")}
        for root in (tmp_path / "root", tmp_path / "again")
    )
    assert first == second
    assert len(first) == 4


GROWTH = """
import resource, sys
from pathlib import Path
from subquad_datasets.lm import PLUGIN, Config
from subquad_datasets.lm.dataset import TextLm
dataset = TextLm(Config(path=sys.argv[1]), Path(sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
dataset.prepare()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown // 1024, dataset.facts["train"]["tokens"])
"""


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is counted in KiB on Linux")
def test_memory_does_not_grow_with_the_text(tmp_path):
    line = TEXT.replace("\n", " ")[:999] + "\n"
    with (tmp_path / "large.txt").open("w") as stream:
        stream.writelines(line for _ in range(64_000))
    given = [sys.executable, "-c", GROWTH, tmp_path / "large.txt", tmp_path / "root"]
    done = subprocess.run(given, check=True, capture_output=True, text=True)
    grown, tokens = map(int, done.stdout.split())
    assert tokens == 57_600_000
    assert grown < 32


@of_real_data
def test_tinyshakespeare(tmp_path):
    path = REAL_DATA / "lm_tinyshakespeare" / "input.txt.xz"
    dataset = dataset_of("text-lm", tmp_path, path=str(path), context=64)
    text = lzma.decompress(path.read_bytes()).decode()
    spec = dataset.describe()
    assert len(text) == 1_115_394
    parts = [scored(dataset.split(name, KEY), spec.text) for name in ("validation", "test")]
    assert text.endswith("".join(parts))
    assert dataset.load("train").last + sum(map(len, parts)) == len(text)
    scores = dataset.reference_scores(dataset.split("test", KEY))["unigram"]
    assert scores["perplexity"] == pytest.approx(28.83, abs=0.01)

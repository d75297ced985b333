"""Tokenizers: texts come back, pieces are the bytes they stand for, what is learnt is kept under
the text's hash.
"""

from __future__ import annotations

import builtins
import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad.errors import DataError
from subquad_datasets.tokenizer import (
    END_TOKEN,
    ByteTokenizer,
    PairTokenizer,
    Tokenizer,
    TokenizerChoice,
    WordTokenizer,
    encoded,
)

LINES = ["the cat sat on the mat .\n", "\n", "the dög sat on the log .\n"] * 3
TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=4
)


@cache
def pairs() -> PairTokenizer:
    return PairTokenizer(PairTokenizer.learn(LINES, 270))


def split(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    flat, lengths = tokenizer.encode(texts)
    return np.split(flat, np.cumsum(lengths)[:-1])


@pytest.mark.parametrize("make", [ByteTokenizer, pairs])
@settings(max_examples=50)
@given(texts=TEXTS)
def test_every_text_comes_back(make: Any, texts: list[str]):
    tokenizer = make()
    rows = split(tokenizer, texts)
    assert [tokenizer.text(row) for row in rows] == texts
    for row, text in zip(rows, texts, strict=True):
        assert sum(tokenizer.token_bytes[token] for token in row) == len(text.encode())
        assert END_TOKEN not in row
        assert 0 not in row


def test_sizes_and_ids():
    assert len(ByteTokenizer().pieces) == 258
    assert split(ByteTokenizer(), ["A\x00"])[0].tolist() == [67, 2]
    assert len(pairs().pieces) == 270
    assert {bytes([value]) for value in range(256)} <= set(pairs().pieces)
    assert b" the" in pairs().pieces
    assert pairs().text([0, END_TOKEN]) == ""
    assert (ByteTokenizer().dtype, WordTokenizer(json.dumps(["a"] * 70_000)).dtype) == (
        np.uint16,
        np.uint32,
    )


def test_words_are_those_of_wikitext():
    wiki = [" \n", " = The cat = \n", " the cat sat , a <unk> cat \n"]
    tokenizer = WordTokenizer(WordTokenizer.learn(wiki, None))
    assert tokenizer.pieces[:4] == (b"", b"", b" \n", b" <unk>")
    assert "".join(map(tokenizer.text, split(tokenizer, wiki))) == "".join(wiki)
    assert split(tokenizer, [" the dog \n"])[0].tolist() == [tokenizer.pieces.index(b" the"), 3, 2]
    assert tokenizer.token_bytes == ()
    commonest = WordTokenizer(WordTokenizer.learn(wiki, 6))
    assert commonest.pieces[4:] == (b" cat", b" =")


def test_what_is_learnt_is_kept_under_the_hash_of_the_text(tmp_path: Path):
    read: list[str] = []

    def texts():
        for line in LINES:
            read.append(line)
            yield line

    choice = TokenizerChoice("bpe", 270)
    first = choice.fit(texts, tmp_path)
    assert (first.learnt, len(read)) == (pairs().learnt, 2 * len(LINES))
    assert choice.fit(texts, tmp_path).learnt == first.learnt
    assert len(read) == 3 * len(LINES)  # hashed, not learnt again
    other = choice.fit(lambda: iter(["x" * 9, *LINES]), tmp_path)
    assert other.learnt != first.learnt
    TokenizerChoice("bpe", 280).fit(texts, tmp_path)
    assert len([path for path in (tmp_path / "tokenizers").iterdir() if path.is_dir()]) == 3
    assert list(tmp_path.iterdir()) == [tmp_path / "tokenizers"]
    assert isinstance(TokenizerChoice("byte").fit(texts, tmp_path / "none"), ByteTokenizer)
    assert not (tmp_path / "none").exists()


def test_pickled_to_other_processes():
    for tokenizer in (ByteTokenizer(), pairs(), WordTokenizer('["a"]')):
        again = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301  (made here)
        assert again.encode(["a a"])[0].tolist() == tokenizer.encode(["a a"])[0].tolist()
        text = pickle.loads(pickle.dumps(tokenizer.text))  # noqa: S301
        assert text([4, 4]) == tokenizer.text([4, 4])


def test_texts_are_encoded_a_mebibyte_at_a_time():
    count = 0

    def texts():
        nonlocal count
        for _ in range(5):
            count += 1
            yield "x" * 600_000

    parts = encoded(ByteTokenizer(), texts())
    assert next(parts)[1].tolist() == [600_000, 600_000]
    assert count == 2
    assert [lengths.tolist() for _, lengths in parts] == [[600_000] * 2, [600_000]]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        DataError,
        match=r"bpe needs the library tokenizers: pip install 'subquad\[text\]', or use byte",
    ):
        TokenizerChoice("bpe").fit(lambda: iter(LINES), tmp_path)
    assert not [path for path in (tmp_path / "tokenizers").iterdir() if path.is_dir()]

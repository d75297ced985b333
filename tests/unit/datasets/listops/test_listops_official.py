"""The official files: what is read, and that nothing wrong is read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_listops import OPERATORS, draw_tree, parenthesised
from plain_listops import value as plain_value

from subquad.errors import DataError
from subquad_datasets.listops.official import find_files, read_rows
from subquad_datasets.listops.reduce import value
from subquad_datasets.listops.tokens import VOCABULARY, decode, encode, stranger

HEADER = b"Source\tTarget\r\n"
GOOD = b"( ( ( [MIN 3 ) 4 ) ] )\t3\r\n"


def test_the_vocabulary_is_fixed():
    assert " ".join(VOCABULARY) == "<pad> 0 1 2 3 4 5 6 7 8 9 [MIN [MAX [MED [SM ]"


def test_encoding_keeps_every_token_and_drops_parentheses():
    source = (
        b"( ( ( ( ( ( ( ( ( [SM 0 ) 1 ) ( ( [MIN 2 ) ] ) ) ( ( [MAX 9 ) ] ) ) ( ( [MED "
        b"5 ) ] ) ) 7 ) 8 ) 3 ) ] )"
    )
    assert decode(encode(source)) == "[SM 0 1 [MIN 2 ] [MAX 9 ] [MED 5 ] 7 8 3 ]"
    assert stranger(source) == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"( ( [MIN 3 ) ] )", ""),
        (b"[MIN  3 4 ]", ""),  # other blanks, no parentheses: the same words
        (b"( ( [FIRST 3 ) ] )", "word 3 is '[FIRST'"),
        (b"( ( [M 3 ) ] )", "word 3 is '[M'"),
        (b"( ( [MIN 33 ) ] )", "word 4 is '33'"),
        (b"( ( [MIN3 ) ] )", "word 3 is '[MIN3'"),
        (b"( ( MIN 3 ) ] )", "word 3 is 'MIN'"),
        (b"( ( [MIN a ) ] )", "word 4 is 'a'"),
        (b"([MIN 3 ] )", "word 1 is '([MIN'"),
        (b"( ( [ 3 ) ] )", "word 3 is '['"),
        (b"( ( [MIN M3 ) ] )", "word 4 is 'M3'"),
        (b"( ( [SM 3I ) ] )", "word 4 is '3I'"),
        (b"( ( [MIN[MAX 3 ) ] )", "word 3 is '[MIN[MAX'"),
        (b"( ( [ MIN 3 ) ] )", "word 3 is '['"),
        (b"( ( [MIN 3 ) ] ) SM", "word 8 is 'SM'"),
        (b"( ( [MIN 3 ) ] ) [MIN", ""),
        (b"( ( [MIN -3 ) ] )", "word 4 is '-3'"),
        (b"( ( [MIN 3\x00 ) ] )", "word 4 is '3\\x00'"),
    ],
)
def test_words_that_are_no_tokens_are_found(source, said):
    assert stranger(source) == said


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_rows_are_read(tmp_path, end):
    path = tmp_path / "basic_train.tsv"
    path.write_bytes((HEADER + GOOD + b"7\t7\r\n").replace(b"\r\n", end))
    assert [(decode(ids), label) for ids, label in read_rows(path)] == [("[MIN 3 4 ]", 3), ("7", 7)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r":1: the header is '', expected 'Source<TAB>Target'"),
        (
            b"source,target\n" + GOOD,
            r":1: the header is 'source,target\\n', expected 'Source<TAB>Target'",
        ),
        (b"\xff\xfeS\x00" + GOOD, r":1: starts with a byte order mark; save the file as UTF-8"),
        (HEADER, r":1: no rows after the header"),
        (HEADER + GOOD + GOOD[:-2], r":3: the line has no end: the file is cut off"),
        (HEADER + GOOD + GOOD[:9], r":3: the line has no end: the file is cut off"),
        (HEADER + GOOD + b"( ( [MIN 3 ) ] )\r\n", r":3: 1 columns, expected 2: Source and Target"),
        (HEADER + b"\r\n" + GOOD, r":2: 1 columns, expected 2"),
        (HEADER + GOOD[:-2] + b"\t1\r\n", r":2: 3 columns, expected 2"),
        (HEADER + GOOD + b"7\t10\r\n", r":3: the label is '10', expected a digit 0\.\.9"),
        (HEADER + b"7\t-1\r\n", r":2: the label is '-1', expected a digit"),
        (HEADER + b"7\t\r\n", r":2: the label is '', expected a digit"),
        (
            HEADER + b"( 7 & )\t7\r\n",
            r":2: word 3 is '&', expected a digit, \[MIN, \[MAX, \[MED, \[SM, \] or a paren",
        ),
        (HEADER + GOOD + b"( \xe9 )\t7\r\n", r":3: byte 0xe9 at column 3 is not UTF-8"),
        (HEADER + "( ٣ )\t3\r\n".encode(), r":2: word 2 is '٣'"),
        (HEADER + "7\t٣\r\n".encode(), r":2: the label is '٣', expected a digit"),
        (HEADER + b"( ( [MIN 3 ) 4 )\t3\r\n", r":2: 1 lists are opened and 0 closed in 3 tokens"),
        (
            HEADER + b"] 2 3 [MAX\t3\r\n",
            r":2: not one well-formed expression; with its lists worked out it reads \] 2 3",
        ),
        (
            HEADER + GOOD + b"[MAX 2 3 ] [MIN 1 2 ]\t3\r\n",
            r":3: not one well-formed expression; .* it reads 3 1$",
        ),
        (HEADER + b"2 3 4\t2\r\n", r":2: not one well-formed expression; .* it reads 2 3 4$"),
        (HEADER + b"[SM 1 [MAX ] ]\t1\r\n", r":2: a list without arguments, \[MAX \]$"),
        (
            HEADER + GOOD + b"[MAX 2 3 ]\t7\r\n",
            r":3: the label is 7, but the expression is worth 3$",
        ),
        (HEADER + b"\t3\r\n", r":2: 0 lists are opened and 0 closed in 0 tokens"),
    ],
)
def test_whatever_is_wrong_is_named_with_its_line(tmp_path, content, said):
    path = tmp_path / "basic_train.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"basic_train\.tsv{said}") as caught:
        list(read_rows(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.tsv: cannot be read: No such file or directory"):
        list(read_rows(tmp_path / "none.tsv"))


@pytest.mark.parametrize(
    "place",
    ["", "listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000"],
)
def test_files_are_found_where_the_release_has_them(official, place):
    root = official(place=place)
    assert find_files(root) == {
        split: root / place / f"basic_{name}.tsv"
        for split, name in (("train", "train"), ("validation", "val"), ("test", "test"))
    }


def test_missing_files_are_named(official, tmp_path):
    with pytest.raises(
        DataError,
        match=r"nowhere: no basic_train\.tsv here or in listops-1000, lra_release/listops-10",
    ):
        find_files(tmp_path / "nowhere")
    with pytest.raises(
        DataError,
        match=r"basic_test\.tsv: missing; the official release has basic_train\.tsv, basic",
    ):
        find_files(official(test=None))


def test_the_order_of_places_does_not_mix_two_releases(official):
    root: Path = official(place="")
    official(place="listops-1000")
    assert {path.parent for path in find_files(root).values()} == {root}


@settings(max_examples=300)
@given(st.text(alphabet="MINAXEDS[]() 059", max_size=24))
def test_the_fast_check_agrees_with_looking_at_each_word(noise):
    words = {"(", ")", "]", *"0123456789", "[MIN", "[MAX", "[MED", "[SM"}
    for text in (
        noise,
        f"( ( [MIN 3 ) {noise} ) ] )",
        noise.replace("[", "[MIN ").replace("M", "[SM "),
    ):
        assert (stranger(text.encode()) == "") == words.issuperset(text.split())


def test_values_agree_with_a_recursive_evaluator():
    source = random.Random(0)
    for _ in range(300):
        tree = [
            source.choice(OPERATORS),
            *(draw_tree(source, 2, 6, 12) for _ in range(source.randint(1, 40))),
        ]
        assert value(encode(parenthesised(tree).encode())) == plain_value(tree)


def test_a_digit_alone_is_an_expression_and_a_deep_one_is_no_recursion():
    assert [value(encode(b"%d" % digit)) for digit in range(10)] == list(range(10))
    assert value(encode(b"[SM 1 " * 2_000 + b"4 " + b"] " * 2_000)) == 4

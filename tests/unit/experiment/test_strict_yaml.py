"""Strict YAML: every refusal names file, line and column; nothing costs more than it may."""

from __future__ import annotations

import pytest

from subquad.errors import ConfigError
from subquad.experiment.settings import Origin
from subquad.experiment.strict_yaml import MAX_DEPTH, MAX_NODES, parse_value, parse_yaml

ALIAS_BOMB = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(f'*{below}' for _ in range(8))}]\n"
    for below, name in zip("abcdefg", "bcdefgh", strict=True)
)


def test_data_and_marks():
    document = parse_yaml("a: 1\nb:\n  - x\n  - {c: 'no'}\n", "f.yaml")
    assert document.data == {"a": 1, "b": ["x", {"c": "no"}]}
    assert document.marks[("b", 1, "c")] == Origin("f.yaml", 4)
    assert document.marks[("b", 0)].line == 3
    assert document.marks[("b",)].line == 2


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "---\n...\n"])
def test_an_empty_document_is_none(text):
    assert parse_yaml(text, "f.yaml").data is None


@pytest.mark.parametrize(
    "text", ["a: 1\r\nb: 2\r\n", "a: 1\n\n\nb: 2", "{a: 1, b: 2}", '{"a": 1, "b": 2}']
)
def test_line_ends_and_flow_style(text):
    assert parse_yaml(text, "f.yaml").data == {"a": 1, "b": 2}


def test_quoted_and_block_scalars_are_text():
    document = parse_yaml("a: '010'\nb: \"1e-3\"\nc: |\n  12\nd: >\n  true\n", "f.yaml")
    assert document.data == {"a": "010", "b": "1e-3", "c": "12\n", "d": "true\n"}


def test_keys_are_always_text():
    assert parse_yaml("no: 1\n1: 2\nnull: 3\n", "f.yaml").data == {"no": 1, "1": 2, "null": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: key a is given twice, on lines 1 and 3"),
        ("a:\n  b: 1\n  b: 2\n", "f.yaml:3:3: key b is given twice, on lines 2 and 3"),
        ("a: 010\n", "f.yaml:1:4: 010 has a leading zero: write 10 for the number, '010' for text"),
        ("a: .inf\n", "f.yaml:1:4: .inf is not a finite number"),
        ("a: 1\nb: *x\n", "f.yaml:2:4: an alias (*x); write the value out"),
        ("a: &x 1\n", "f.yaml:1:4: an anchor (&x); write values out where they are used"),
        (ALIAS_BOMB, "f.yaml:1:4: an anchor (&a); write values out where they are used"),
        (
            "a: !!str 1\n",
            "f.yaml:1:4: a tag (tag:yaml.org,2002:str); only plain values can be used",
        ),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "f.yaml:1:4: a tag (tag:yaml.org,2002:python/object/apply:os.system); "
            "only plain values can be used",
        ),
        ("a: !x 1\n", "f.yaml:1:4: a tag (!x); only plain values can be used"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document; one file is one experiment"),
        ("%YAML 1.1\n---\na: 1\n", "f.yaml:1:1: a %YAML or %TAG directive; leave it out"),
        ("? [a, b]\n: 1\n", "f.yaml:1:3: a key must be a word"),
        ("'': 1\n", "f.yaml:1:1: a key must be a word"),
        ("a:\n\t- b\n", "f.yaml:2:1: a tab; use spaces"),
        ("a: 'x\n", "f.yaml:2:1: the text ends inside quotes or brackets"),
        ("a: [1, 2\n", "f.yaml:2:1: a list that is not closed with ']'"),
        ("a: {b: 1\n", "f.yaml:2:1: a mapping that is not closed with '}'"),
        (
            "a: b: c\n",
            "f.yaml:1:5: a ':' too many on this line; put text that holds ': ' in quotes",
        ),
        ("a: 1\nb\nc: 2\n", "f.yaml:3:1: a key without ':'"),
        (
            "a: 1\n  b: 2\n",
            "f.yaml:2:4: a ':' too many on this line; put text that holds ': ' in quotes",
        ),
        ("- a\nb: 1\n", "f.yaml:2:1: does not line up with the lines above it"),
        ("a: @x\n", "f.yaml:1:4: this character cannot begin a value here; put the text in quotes"),
        ("a: *\n", "f.yaml:1:5: a name is missing after '&', '*' or '!'; put the text in quotes"),
        ("a: ]\n", "f.yaml:1:4: a value is missing here"),
        ("{a: 1}}\n", "f.yaml:1:7: text after the end of the document"),
        (
            'a: "\\q"\n',
            "f.yaml:1:5: a backslash in double quotes begins an escape; use single "
            "quotes, or write \\\\",
        ),
        ('a: "\\ud800"\n', "f.yaml:1:7: an escape in double quotes stands for no character"),
        ('a: "\\U99999999"\n', "f.yaml:1:7: an escape in double quotes stands for no character"),
        ("a: 1\nb: x\x00y\n", "f.yaml:2:5: control character U+0000; is this a binary file?"),
        ("a: \x1b[31m\n", "f.yaml:1:4: control character U+001B; is this a binary file?"),
    ],
)
def test_refusals_name_line_and_column(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10_000, f"f.yaml:1:{MAX_DEPTH + 2}: nested deeper than {MAX_DEPTH} levels"),
        ("{a: " * 10_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("- " * 10_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("? " * 10_000, "a key must be a word"),
        ("a: [" + "1," * (MAX_NODES + 1) + "]", f"more than {MAX_NODES:,} keys and values"),
    ],
)
def test_depth_and_size_are_bounded(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        (" 5 ", 5),
        ("a: b", "a: b"),
        ("&x", "&x"),
        ("!x", "!x"),
        ("./file.py:Mixer", "./file.py:Mixer"),
        ("http://host:5000", "http://host:5000"),
        ("[1, a, 'no']", [1, "a", "no"]),
        ("{order: 2, x: [1]}", {"order": 2, "x": [1]}),
        ("'1e-3'", "1e-3"),
        ("", None),
    ],
)
def test_a_value_on_the_command_line(text, value):
    assert parse_value(text, "override") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "override 'x=[1': a list that is not closed with ']'"),
        (
            "010",
            "override 'x=010': 010 has a leading zero: write 10 for the number, '010' for text",
        ),
        ("a\x00b", "override 'x=a\\x00b': control character U+0000; is this a binary file?"),
        ("[*a]", "override 'x=[*a]': an alias (*a); write the value out"),
        ("{a: 1, a: 2}", "override 'x={a: 1, a: 2}': key a is given twice, on lines 1 and 1"),
    ],
)
def test_a_refused_value_on_the_command_line(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_value(text, f"override {f'x={text}'!r}")
    assert str(caught.value) == message


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)


def test_values_used_again_count_as_all_that_they_stand_for():
    again = "a: &a {x: 1, y: [2]}\nb: {<<: *a, x: 3}\nc: *a\n"
    whole = {"x": 1, "y": [2]}
    assert parse_yaml(again, "f.yaml", aliases=True).data == {
        "a": whole,
        "b": {"x": 3, "y": [2]},
        "c": whole,
    }
    with pytest.raises(ConfigError, match=f"more than {MAX_NODES:,} keys and values"):
        parse_yaml(BOMB, "f.yaml", aliases=True)
    with pytest.raises(ConfigError, match=r"an alias \(\*b\)"):
        parse_yaml("a: *b", "f.yaml", aliases=True)

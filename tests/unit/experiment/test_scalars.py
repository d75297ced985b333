"""What plain scalars mean: the traps of YAML 1.1 are numbers, text or refused."""

from __future__ import annotations

import pytest

from subquad.experiment.strict_yaml import _plain_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("1.0e-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("-2", -2),
        ("+2", 2),
        ("0", 0),
        ("-0.0", -0.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_numbers_truth_and_null(text, value):
    assert _plain_value(text) == value
    assert type(_plain_value(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "n",
        "NO",
        "1:30",
        "190:20:30",
        "2026-01-01",
        "1_000",
        "0x10",
        "0o10",
        "0b1",
        "inf",
        "nan",
        "NaN",
        "1e",
        "e3",
        "1.2.3",
        "--1",
        "+",
        "-",
        ".",
        "=",
        "<<",
        "tRUE",
        "${HOME}",
        "٣",
    ],
)
def test_everything_else_is_text(text):
    assert _plain_value(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("010", "010 has a leading zero: write 10 for the number, '010' for text"),
        ("-007", "-007 has a leading zero: write -7 for the number, '-007' for text"),
        ("00.5", "00.5 has a leading zero: write 0.5 for the number, '00.5' for text"),
        (".inf", ".inf is not a finite number"),
        ("-.Inf", "-.Inf is not a finite number"),
        (".nan", ".nan is not a finite number"),
        ("1e999", "1e999 does not fit 64 bits"),
        ("9223372036854775808", "9223372036854775808 does not fit 64 bits"),
        ("9" * 5000, "999999999999999999999999999... does not fit 64 bits"),
    ],
)
def test_ambiguous_numbers_are_refused(text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the whole message is compared)
        _plain_value(text)
    assert str(caught.value) == message

"""Foreign text on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad.errors import escaped
from subquad.registry.faults import cause


@given(st.text(st.characters(codec=None)))
def test_no_character_can_steer_the_terminal(text):
    shown = escaped(text)
    assert len(shown) <= 400
    assert not [
        char for char in shown if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=399))
def test_ordinary_text_is_unchanged(text):
    assert escaped(text) == text


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit(3), "it called sys.exit(3)"),
        (SystemExit(), "it called sys.exit()"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Mute(), "Mute"),
    ],
)
def test_a_cause_is_one_line(error, line):
    assert cause(error) == line


def test_a_cause_names_the_line_that_raised():
    with pytest.raises(KeyError) as caught:
        {}["missing"]
    assert cause(caught.value).startswith("KeyError: 'missing' (")
    assert "test_text.py:" in cause(caught.value)

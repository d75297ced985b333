"""The vocabulary of ListOps, in a fixed order, and the text of the official files as token ids.

Upstream loaders number the tokens as a Python set lists them, another order in each process.
"""

from __future__ import annotations

import re

DIGITS = tuple("0123456789")
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
END = "]"
"""The end of a list; upstream loaders call it X."""

VOCABULARY = ("<pad>", *DIGITS, *OPERATORS, END)
"""Token by id: 0 padding, 1..10 the digits, 11..14 the operators, 15 the end of a list."""

FIRST_DIGIT = 1
FIRST_OPERATOR = 11
END_ID = 15

_DISTINGUISHING = b"0123456789IAES]"
"""The byte that tells each token from all others: digits, the I of MIN, A of MAX, E of MED, S of
SM, and `]`.
"""

_TO_ID = bytes.maketrans(_DISTINGUISHING, bytes(range(1, 16)))
_DELETED = bytes(byte for byte in range(256) if byte not in _DISTINGUISHING)
_WORDS = frozenset(b"( ) ] 0 1 2 3 4 5 6 7 8 9 [MIN [MAX [MED [SM".split())


def encode(source: bytes) -> bytes:
    """Token ids of an expression, one byte each; parentheses and blanks are dropped.

    One pass over the bytes; meaningful only where `stranger` finds nothing.
    """
    return source.translate(_TO_ID, _DELETED)


def decode(ids: bytes) -> str:
    """The expression without parentheses: the inverse of `encode`."""
    return " ".join(VOCABULARY[token] for token in ids)


def stranger(source: bytes) -> str:
    """The first word of an expression that is no token and no parenthesis, in words; "" where
    all are known.
    """
    if _is_tidy(source):
        return ""
    for number, match in enumerate(re.finditer(rb"\S+", source), start=1):
        if (word := match.group()) not in _WORDS:
            return f"word {number} is {word[:40].decode('utf-8', 'replace')!r}"
    return ""


def _is_tidy(source: bytes) -> bool:
    """Known words with single blanks between, as in the official files; four times faster than
    looking at each word.

    Without its letters every word is one character. Then the letters need only be those of whole
    operators.
    """
    short = source.translate(None, b"MINAXEDS")
    if short[1::2].strip(b" ") or short[::2].translate(None, b"0123456789[]()"):
        return False
    operators = [source.count(operator) for operator in (b"[MIN ", b"[MAX ", b"[MED ", b"[SM ")]
    letters = 3 * sum(operators[:3]) + 2 * operators[3]
    return sum(operators) == short.count(b"[") and letters == len(source) - len(short)

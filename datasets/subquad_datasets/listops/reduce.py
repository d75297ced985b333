"""What one expression is worth: its innermost lists are replaced by their values until a digit is
left.

For rows of files, of which nothing is known; generated trees are valued a block at a time, in
`levels`. Token ids are those of `tokens`, one byte each, so that a list of digits is found by a
regular expression.
"""

from __future__ import annotations

import re

from subquad_datasets.listops.tokens import END_ID, FIRST_DIGIT, FIRST_OPERATOR, OPERATORS, decode

_DIGITS = range(FIRST_DIGIT, FIRST_OPERATOR)
_LISTS = range(FIRST_OPERATOR, END_ID)
_INNERMOST = re.compile(b"[%b][%b]+%c" % (bytes(_LISTS), bytes(_DIGITS), END_ID))
_EMPTY = re.compile(b"[%b]%c" % (bytes(_LISTS), END_ID))
_ONE = tuple(bytes([token]) for token in range(END_ID))
_MIN, _MAX, _MED, _ = (FIRST_OPERATOR + number for number in range(len(OPERATORS)))
_SHOWN = 8
"""Tokens of a malformed expression that a message names."""

_PASSES = 20
"""Passes over an expression, each for one level; the official ones have 10."""


def value(ids: bytes) -> int:
    """The value, 0..9, of a sequence of token ids.

    Raises:
        ValueError: it is not exactly one well-formed expression.
    """
    left = ids
    for _ in range(_PASSES):
        left, count = _INNERMOST.subn(_apply, left)
        if not count:
            break
    else:
        left = _folded(left)
    if len(left) == 1 and left[0] in _DIGITS:
        return left[0] - FIRST_DIGIT
    if empty := _EMPTY.search(left):
        raise ValueError(f"a list without arguments, {decode(empty.group())}")
    shown = decode(left[:_SHOWN]) + (" ..." if len(left) > _SHOWN else "")
    raise ValueError(f"not one well-formed expression; with its lists worked out it reads {shown}")


def _folded(ids: bytes) -> bytes:
    """An expression with all its lists worked out in one slow pass, however deep they are."""
    left = bytearray()
    starts = list[int]()
    for token in ids:
        left.append(token)
        if token in _LISTS:
            starts.append(len(left) - 1)
        elif token == END_ID and starts:
            start = starts.pop()
            if _INNERMOST.fullmatch(left, start):
                left[start:] = _worth(bytes(left[start:]))
            else:  # so those around it cannot be worked out either
                starts.clear()
    return bytes(left)


def _apply(match: re.Match[bytes]) -> bytes:
    return _worth(match.group())


def _worth(tokens: bytes) -> bytes:
    """One list of digits, as the token of its value."""
    operator = tokens[0]
    digits = tokens[1:-1]
    if operator == _MIN:
        return _ONE[min(digits)]
    if operator == _MAX:
        return _ONE[max(digits)]
    if operator == _MED:
        ordered = sorted(digits)
        half = len(digits) // 2
        return _ONE[(ordered[half] + ordered[~half]) // 2]
    return _ONE[(sum(digits) - FIRST_DIGIT * len(digits)) % 10 + FIRST_DIGIT]

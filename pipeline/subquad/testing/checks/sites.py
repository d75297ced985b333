"""Where a mixer may stand: behind a class token, on a grid of image patches."""

from __future__ import annotations

from typing import Any

from subquad.errors import ConfigError
from subquad.nn import TokenMixer
from subquad.testing.calls import padded
from subquad.testing.check import Check, Finding, NotApplicable
from subquad.testing.checks.lengths import passes
from subquad.testing.subject import MAX_LEN, Subject

GRID = (7, 9)
"""Height and width: with the class token as many tokens as `MAX_LEN`."""


def class_token(subject: Subject) -> Finding:
    """One prefix token in front of a sequence."""
    length = subject.at_most(14)
    mixer = _built(subject, num_prefix_tokens=1)
    passes("class token in front", mixer, subject.tokens(2, length), None)
    passes(
        "class token in front, padded", mixer, subject.tokens(2, length), padded(length, (length, (length + 1) // 2))
    )
    return Finding(f"1 + {length - 1} tokens")


def image(subject: Subject) -> Finding:
    """A class token in front of a grid of image patches."""
    if (most := subject.at_most(MAX_LEN)) < MAX_LEN:
        raise NotApplicable(f"takes {most} positions, a grid of 7 x 9 needs {MAX_LEN}")
    mixer = _built(subject, num_prefix_tokens=1, grid=GRID)
    passes("image patches", mixer, subject.tokens(2, MAX_LEN), None)
    return Finding("1 + 7 x 9 tokens")


def _built(subject: Subject, **site: Any) -> TokenMixer:
    try:
        return subject.build(**site)
    except ConfigError as error:
        raise NotApplicable(f"refuses such a place when built: {error}") from None


CHECKS = (
    Check(name="class-token", shows="works with a class token in front", run=class_token),
    Check(name="image-grid", shows="works on a grid of image patches with a class token", run=image),
)

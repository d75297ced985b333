"""Names of classes and series as files have them: two that a reader would take for one are a
mistake of the file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)


def first_alike(names: Iterable[str], *, numbers_only: bool = False) -> tuple[str, str] | None:
    """The first two names that look alike, in the order given; None where there are none.

    They are one number written in two ways, such as 1 and 01; or they differ only in case, in
    blanks around them or in the Unicode form of their letters.

    Args:
        names: each once.
        numbers_only: names that are no numbers may look alike.
    """
    names_by_look = dict[str, str]()
    for name in names:
        look = _look(name, numbers_only)
        if look in names_by_look:
            return names_by_look[look], name
        names_by_look[look] = name
    return None


def _look(name: str, numbers_only: bool) -> str:
    plain = unicodedata.normalize("NFKC", name).strip()
    if _NUMBER.fullmatch(plain):
        return _plain_number(plain)
    return name if numbers_only else plain.casefold()


def _plain_number(text: str) -> str:
    """Without a plus, zeros that mean nothing, and a point after which nothing stands."""
    sign = "-" if text.startswith("-") else ""
    whole, _, part = text.lstrip("+-").partition(".")
    digits = f"{whole.lstrip('0') or '0'}.{part.rstrip('0')}"
    if digits == "0.":
        return digits
    return f"{sign}{digits}"

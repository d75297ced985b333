"""What plugins say of themselves, read from the text of their modules: nothing of them runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from subquad.registry.found import Found
from subquad.registry.shipped import places_of

_MOST_BYTES = 1_000_000
_places = cache(places_of)


def declared_constants(found: Found) -> Mapping[str, Any]:
    """The constants that a plugin's descriptor is given, such as `summary`; of a mixer also those
    of its facts, such as `complexity`; of a command the first line of its help. Empty where its
    text does not tell.
    """
    module, _, attribute = found.target.partition(":")
    path = _file_of(module)
    if path is None or path.stat().st_size > _MOST_BYTES:
        return {}
    try:
        # From the descriptor on, which stands at the end: whole modules would take seconds.
        text = path.read_text(encoding="utf-8")
        _, start, rest = text.partition(f"\n{attribute} = ")
        if not start:
            _, start, rest = text.partition(f"\ndef {attribute}(")
        first = ast.parse(f"{start}{rest}").body[:1]
    except (SyntaxError, ValueError, RecursionError, OSError):
        return {}
    if first and isinstance(first[0], ast.Assign):
        return _constants(first[0].value)
    if first and isinstance(first[0], ast.FunctionDef):  # a command
        return {"summary": (ast.get_docstring(first[0]) or "").partition("\n")[0]}
    return {}


def _file_of(module: str) -> Path | None:
    """The file of a module, without importing the packages above it."""
    for place in _places(module):
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def _constants(call: ast.expr) -> dict[str, Any]:
    """The keyword arguments of a call that are written out, and those of calls among them."""
    if not isinstance(call, ast.Call):
        return {}
    found = dict[str, Any]()
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Constant) and keyword.arg:
            found[keyword.arg] = keyword.value.value
        elif keyword.arg == "facts":
            found |= _constants(keyword.value)
    return found

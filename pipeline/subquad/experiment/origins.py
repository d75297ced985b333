"""Where each setting was given, so that an error found much later still names the file and line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subquad.errors import ConfigError
from subquad.registry.text import plain

KeyPath = tuple[str | int, ...]

_LONGEST_MESSAGE = 600


@dataclass(frozen=True)
class Origin:
    """Where a value was given.

    Attributes:
        source: a file as the user typed it, `recipe NAME` or `override 'KEY=VALUE'`.
        line: counted from 1; 0 where there are no lines.
        folder: what a relative path in the value is relative to.
    """

    source: str
    line: int = 0
    folder: Path | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    @property
    def is_override(self) -> bool:
        return self.source.startswith("override ")


Marks = Mapping[KeyPath, Origin]
"""The origin of each key; a key that is not there came with its nearest ancestor, or is a default."""


def origin_of(path: KeyPath, marks: Marks | None) -> Origin | None:
    """The origin of a key, or of the mapping it would stand in; None when nothing is known."""
    if not marks:
        return None
    for length in range(len(path), -1, -1):
        if path[:length] in marks:
            return marks[path[:length]]
    return None


def dotted(path: KeyPath) -> str:
    """`mixer.params.order`; an index in a list is written `[2]`, counted from 0."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{shown_key(key)}" for key in path)
    return "".join(parts).removeprefix(".")


def shown_key(key: str) -> str:
    """A key as it is, or quoted where it is long or holds anything but letters, digits, '.', '-' and '_'."""
    return key if re.fullmatch(r"[\w.-]{1,60}", key) else repr(shorten(key, 60))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def one_line(message: str) -> str:
    """`message` with line breaks and control characters shown as escapes, and not endlessly long."""
    return plain(message, _LONGEST_MESSAGE)


def shown_target(target: str) -> str:
    """A file's name as messages show it: of a very long one the end."""
    return target if len(target) <= 200 else f"...{target[-197:]}"


def problem(path: KeyPath, message: str, marks: Marks | None = None) -> ConfigError:
    """The error for one setting: `file:line: key.path: message`."""
    origin = origin_of(path, marks)
    parts = [str(origin) if origin else "", dotted(path), message]
    return ConfigError(one_line(": ".join(part for part in parts if part)))


def mark_all(value: Any, path: KeyPath, origin: Origin) -> dict[KeyPath, Origin]:
    """The same origin for a value and everything in it."""
    marks = {path: origin}
    for key, child in children(value):
        marks |= mark_all(child, (*path, key), origin)
    return marks


def children(value: Any) -> list[tuple[str | int, Any]]:
    """Keys (or indices) and values of a mapping or list; nothing for a scalar."""
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []

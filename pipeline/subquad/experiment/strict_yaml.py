"""Read YAML strictly: plain data only, no surprises, bounded cost, and the line of every key.

Refused with `file:line:col: reason`: duplicate keys, tags, anchors and aliases, several documents, keys that are not
plain text, tabs as indentation, control characters, and texts too long or too deep. Built on the parser's events, so
that nothing is constructed before it has passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml import events

from subquad.errors import ConfigError
from subquad.experiment.origins import KeyPath, Origin, one_line, shown_key
from subquad.experiment.scalars import scalar

MAX_DEPTH = 20
MAX_NODES = 50_000
"""The pure Python parser reads about 70,000 nodes a second; no experiment comes near either limit."""

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_NO_CHARACTER = "an escape in double quotes stands for no character"
_REASONS = {
    "found character '\\t'": "a tab; use spaces",
    "cannot start any token": "this character cannot begin a value here; put the text in quotes",
    "expected alphabetic or numeric": "a name is missing after '&', '*' or '!'; put the text in quotes",
    "expected the node content": "a value is missing here",
    "could not find expected ':'": "a key without ':'",
    "mapping values are not allowed here": "a ':' too many on this line; put text that holds ': ' in quotes",
    "found unexpected end of stream": "the text ends inside quotes or brackets",
    "expected ',' or ']'": "a list that is not closed with ']'",
    "expected ',' or '}'": "a mapping that is not closed with '}'",
    "expected <block end>": "does not line up with the lines above it",
    "expected '<document start>'": "text after the end of the document",
    "escape": "a backslash in double quotes begins an escape; use single quotes, or write \\\\",
}


class _Loader(yaml.SafeLoader):
    """The safe loader's scanner and parser; its constructors are never reached."""


class _Refused(Exception):
    """Why a text is refused, and where: line and column from 1."""

    def __init__(self, reason: str, line: int, column: int):
        super().__init__(reason)
        self.reason, self.line, self.column = reason, line, column


@dataclass(frozen=True)
class Document:
    """What a YAML text says.

    Attributes:
        data: mappings, lists and scalars.
        marks: where each key and list item stands.
    """

    data: Any
    marks: dict[KeyPath, Origin] = field(default_factory=dict)


def parse(text: str, name: str, folder: Path | None = None) -> Document:
    """Parse one YAML document.

    Args:
        text: the document.
        name: what messages call it.
        folder: what relative paths in it are relative to.

    Raises:
        ConfigError: it is not strict YAML.
    """
    try:
        return _parse(text, name, folder)
    except _Refused as error:
        raise ConfigError(one_line(f"{name}:{error.line}:{error.column}: {error.reason}")) from None


def parse_value(text: str, name: str) -> Any:
    """The value of an override: a list, mapping or quoted text in YAML's flow style, else one plain scalar.

    Raises:
        ConfigError: it is not strict YAML.
    """
    try:
        if text[:1] in ("[", "{", '"', "'"):
            return _parse(text, name, None).data
        _refuse_unprintable(text)
        return scalar(text.strip())
    except _Refused as error:
        raise ConfigError(one_line(f"{name}: {error.reason}")) from None
    except ValueError as error:
        raise ConfigError(one_line(f"{name}: {error}")) from None


def _parse(text: str, name: str, folder: Path | None) -> Document:
    _refuse_unprintable(text)
    try:
        return _Reader(name, folder, yaml.parse(text, Loader=_Loader)).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from None
    except (ValueError, OverflowError):  # PyYAML calls chr() on whatever follows \U
        raise _Refused(_NO_CHARACTER, 1, 1) from None


def _refuse_unprintable(text: str) -> None:
    if found := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        raise _Refused(f"control character U+{ord(found.group()):04X}; is this a binary file?", line, column)


def _syntax_error(error: yaml.MarkedYAMLError) -> _Refused:
    said = error.problem or error.context or "not YAML"
    mark = error.problem_mark or error.context_mark
    reason = next((ours for theirs, ours in _REASONS.items() if theirs in said), said)
    return _Refused(reason, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1)


def _refuse(event: events.Event, reason: str) -> _Refused:
    return _Refused(reason, event.start_mark.line + 1, event.start_mark.column + 1)


def _text(event: events.ScalarEvent) -> str:
    if re.search(r"[\ud800-\udfff]", event.value):
        raise _refuse(event, _NO_CHARACTER)
    return event.value


def _scalar(event: events.ScalarEvent) -> Any:
    if not event.implicit[0]:  # quoted, or a block of text
        return _text(event)
    try:
        return scalar(event.value)
    except ValueError as error:
        raise _refuse(event, str(error)) from None


class _Reader:
    """Builds data and marks from one document's events."""

    def __init__(self, name: str, folder: Path | None, stream: Iterator[events.Event]):
        self.name = name
        self.folder = folder
        self.stream = stream
        self.marks: dict[KeyPath, Origin] = {}
        self.nodes = 0

    def document(self) -> Document:
        next(self.stream)  # stream start
        start = next(self.stream)
        if isinstance(start, events.StreamEndEvent):
            return Document(None)
        if getattr(start, "version", None) or getattr(start, "tags", None):
            raise _refuse(start, "a %YAML or %TAG directive; leave it out")
        data = self.value((), next(self.stream))
        next(self.stream)  # document end
        following = next(self.stream)
        if not isinstance(following, events.StreamEndEvent):
            raise _refuse(following, "a second document; one file is one experiment")
        return Document(data, self.marks)

    def value(self, path: KeyPath, event: Any) -> Any:
        self.limit(path, event)
        self.marks.setdefault(path, self.origin(event))
        if isinstance(event, events.MappingStartEvent):
            return self.mapping(path)
        if isinstance(event, events.SequenceStartEvent):
            return self.sequence(path)
        return _scalar(event)

    def limit(self, path: KeyPath, event: Any) -> None:
        """Refuse what means more than it says, or costs more than it should."""
        self.nodes += 1
        if isinstance(event, events.AliasEvent):
            raise _refuse(event, f"an alias (*{event.anchor}); write the value out")
        if event.anchor is not None:
            raise _refuse(event, f"an anchor (&{event.anchor}); write values out where they are used")
        if event.tag is not None:
            raise _refuse(event, f"a tag ({event.tag}); only plain values can be used")
        if len(path) > MAX_DEPTH:
            raise _refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            raise _refuse(event, f"more than {MAX_NODES:,} keys and values")

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self.stream), events.MappingEndEvent):
            key = self.key(path, event)
            if key in result:
                first, second = self.marks[(*path, key)].line, event.start_mark.line + 1
                raise _refuse(event, f"key {shown_key(key)} is given twice, on lines {first} and {second}")
            self.marks[(*path, key)] = self.origin(event)
            result[key] = self.value((*path, key), next(self.stream))
        return result

    def sequence(self, path: KeyPath) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := next(self.stream), events.SequenceEndEvent):
            result.append(self.value((*path, len(result)), event))
        return result

    def key(self, path: KeyPath, event: Any) -> str:
        self.limit(path, event)
        if not isinstance(event, events.ScalarEvent) or not event.value:
            raise _refuse(event, "a key must be a word")
        return _text(event)

    def origin(self, event: events.Event) -> Origin:
        return Origin(self.name, event.start_mark.line + 1, self.folder)

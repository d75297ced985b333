"""Read YAML strictly: plain data only, no surprises, bounded cost, the line of every key; write
what reads back.

Refused with `file:line:col: reason`: duplicate keys, tags, anchors and aliases, several documents,
keys that are not plain text, tabs as indentation, control characters, and texts too long or too
deep. Built on the events of libyaml's parser, so that nothing is constructed before it has passed.
A plain scalar means what YAML 1.2 says, without surprises: `1e-3` is a number; `no`, `on`, `1:30`
and `2026-01-01` are text; `010`, `.inf` and numbers that do not fit 64 bits are refused, because
each of them means something else to some reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from yaml import events

from subquad.errors import ConfigError
from subquad.experiment.settings import KeyPath, Origin, Tree, shorten, shown_key
from subquad.security.disk import opened

MAX_BYTES = 1_000_000


def read_text(path: Path, name: str) -> str:
    """The text of a file, at most `MAX_BYTES` of UTF-8; `name` is what messages call it.

    Raises:
        ConfigError: it is missing, not a regular file, too large, or not text.
    """
    try:
        if path.is_dir():
            raise ConfigError(f"{name}: a directory, must be a YAML file")
        if path.exists() and not path.is_file():  # a pipe or a device could block for ever
            raise ConfigError(f"{name}: not a regular file")
        with opened(path) as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name}: cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{name}: larger than {MAX_BYTES:,} bytes, which no experiment file is")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError(f"{name}: UTF-16 text; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        reason = f"not UTF-8 text (byte 0x{content[error.start]:02x})"
        raise ConfigError(f"{name}:{line}: {reason}") from None


Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@lru_cache(2**12)
def _plain_value(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar.

    Raises:
        ValueError: it looks like a number and cannot be used as one; the message says what to
            write.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if not _NUMBER.fullmatch(text):
        return text
    cut = shorten(text, 30)
    if _LEADING_ZERO.match(text):
        bare = re.sub(r"^[+]?(-?)0+(?=[0-9])", r"\1", text)
        instead = f"write {shorten(bare, 30)} for the number, '{cut}' for text"
        raise ValueError(f"{cut} has a leading zero: {instead}")
    if not _INTEGER.fullmatch(text):
        number = float(text)
        if not math.isinf(number):
            return number
    elif len(text) <= 20 and -(2**63) <= int(text) < 2**63:
        return int(text)
    raise ValueError(f"{cut} does not fit 64 bits")


MAX_DEPTH = 20
MAX_NODES = 50_000
"""No experiment comes near either limit."""

_UNPRINTABLE = re.compile(
    r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_REASONS = {
    "invalid Unicode character": "an escape in double quotes stands for no character",
    "cannot start any token": "this character cannot begin a value here; put the text in quotes",
    "expected alphabetic or numeric": "a name is missing after '&', '*' or '!'; "
    "put the text in quotes",
    "expected node content": "a value is missing here",
    "could not find expected ':'": "a key without ':'",
    "mapping values are not allowed in this context": "a ':' too many on this line; "
    "put text that holds ': ' in quotes",
    "found unexpected end of stream": "the text ends inside quotes or brackets",
    "expected ',' or ']'": "a list that is not closed with ']'",
    "expected ',' or '}'": "a mapping that is not closed with '}'",
    "expected '-' indicator": "does not line up with the lines above it",
    "expected key": "does not line up with the lines above it",
    "expected <document start>": "text after the end of the document",
    "escape": "a backslash in double quotes begins an escape; use single quotes, or write \\\\",
}
"""What the parser says, and what we say."""


class _Refused(yaml.MarkedYAMLError):
    """A text that the parser might take, or refuse in worse words."""


def parse_yaml(text: str, name: str, folder: Path | None = None, *, aliases: bool = False) -> Tree:
    """Parse one YAML document; its data are None where it is empty.

    Messages call it by `name`, and relative paths in it are relative to `folder`.

    Args:
        aliases: values may be anchored, used again and merged (`<<`). Each use counts as all that
            it stands for.

    Raises:
        ConfigError: it is not strict YAML.
    """
    try:
        return _parse(text, name, folder, aliases)
    except yaml.MarkedYAMLError as error:
        reason = _reason(error)
        place = "1:1"
        mark = error.problem_mark or error.context_mark
        if mark:
            place = f"{mark.line + 1}:{mark.column + 1}"
            if text[mark.index : mark.index + 1] == "\t":
                reason = "a tab; use spaces"
        raise ConfigError(f"{name}:{place}: {reason}") from None


def read_yaml(path: Path, name: str = "") -> Any:
    """The plain data of a YAML file; `name` is what messages call it, its path where none is given.

    Raises:
        ConfigError: it cannot be read, or is not strict YAML.
    """
    name = name or str(path)
    return parse_yaml(read_text(path, name), name).data


def parse_value(text: str, name: str) -> Any:
    """The value of an override: a list, mapping or quoted text in YAML's flow style, else one plain
    scalar.

    Raises:
        ConfigError: it is not strict YAML.
    """
    try:
        if text.startswith(("[", "{", '"', "'")):
            return _parse(text, name, None, aliases=False).data
        _refuse_unprintable(text)
        return _plain_value(text.strip())
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{name}: {_reason(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _reason(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "not YAML"
    if isinstance(error, _Refused):
        return problem
    for theirs, ours in _REASONS.items():
        if theirs in problem:
            return ours
    return problem


def _parse(text: str, name: str, folder: Path | None, aliases: bool) -> Tree:
    _refuse_unprintable(text)
    stream = iter(yaml.CSafeLoader(text).get_event, None)
    return _Reader(name, folder, stream, aliases).document()


def _refuse_unprintable(text: str) -> None:
    if not (found := _UNPRINTABLE.search(text)):
        return
    start = found.start()
    raise _Refused(
        problem=f"control character U+{ord(found.group()):04X}; is this a binary file?",
        problem_mark=yaml.Mark(
            "", start, text.count("\n", 0, start), start - text.rfind("\n", 0, start) - 1, None, 0
        ),
    )


def _refuse(event: events.Event, reason: str) -> _Refused:
    return _Refused(problem=reason, problem_mark=event.start_mark)


class _Reader:
    """Builds data and marks from one document's events."""

    def __init__(
        self, name: str, folder: Path | None, stream: Iterator[events.Event], aliases: bool
    ):
        self.name = name
        self.folder = folder
        self.stream = stream
        self.marks: dict[KeyPath, Origin] = {}
        self.nodes = 0
        self.aliases = aliases
        self.anchored: dict[str, tuple[Any, int]] = {}  # values and how many nodes each is

    def document(self) -> Tree:
        next(self.stream)  # stream start
        start = next(self.stream)
        if isinstance(start, events.StreamEndEvent):
            return Tree(None, {})
        if getattr(start, "version", None) or getattr(start, "tags", None):
            raise _refuse(start, "a %YAML or %TAG directive; leave it out")
        data = self.value((), next(self.stream))
        next(self.stream)  # document end
        following = next(self.stream)
        if not isinstance(following, events.StreamEndEvent):
            raise _refuse(following, "a second document; one file is one experiment")
        return Tree(data, self.marks)

    def value(self, path: KeyPath, event: Any) -> Any:
        if event.anchor in self.anchored and isinstance(event, events.AliasEvent):
            data, nodes = self.anchored[event.anchor]
            self.count(nodes, event)
            return data
        before = self.nodes
        self.limit(path, event)
        if path not in self.marks:
            self.marks[path] = self.origin(event)
        data: Any = getattr(event, "value", None)  # text, where it is quoted or a block
        if isinstance(event, events.ScalarEvent) and event.implicit[0]:
            try:
                data = _plain_value(event.value)
            except ValueError as error:
                raise _refuse(event, str(error)) from None
        elif isinstance(event, events.MappingStartEvent):
            data = self.mapping(path)
        elif isinstance(event, events.SequenceStartEvent):
            data = self.sequence(path)
        if event.anchor is not None:
            self.anchored[event.anchor] = (data, self.nodes - before)
        return data

    def count(self, nodes: int, event: Any) -> None:
        """Refuse more nodes than a text may have, those that an alias stands for included."""
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _refuse(event, f"more than {MAX_NODES:,} keys and values")

    def limit(self, path: KeyPath, event: Any) -> None:
        """Refuse what means more than it says, or costs more than it should."""
        self.count(1, event)
        if event.anchor is None and event.tag is None and len(path) <= MAX_DEPTH:
            return
        if isinstance(event, events.AliasEvent):
            raise _refuse(event, f"an alias (*{event.anchor}); write the value out")
        if event.anchor is not None and not self.aliases:
            raise _refuse(
                event, f"an anchor (&{event.anchor}); write values out where they are used"
            )
        if event.tag is not None:
            raise _refuse(event, f"a tag ({event.tag}); only plain values can be used")
        if len(path) > MAX_DEPTH:
            raise _refuse(event, f"nested deeper than {MAX_DEPTH} levels")

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for event in self.until(events.MappingEndEvent):
            self.limit(path, event)
            key = getattr(event, "value", None)
            if not key:
                raise _refuse(event, "a key must be a word")
            below = (*path, key)
            origin = self.origin(event)
            if key in result:
                first = self.marks[below].line
                message = f"key {shown_key(key)} is given twice"
                raise _refuse(event, f"{message}, on lines {first} and {origin.line}")
            self.marks[below] = origin
            result[key] = self.value(below, next(self.stream))
        merged = result.get("<<")
        if self.aliases and isinstance(merged, dict):
            del result["<<"]
            return {**merged, **result}
        return result

    def sequence(self, path: KeyPath) -> list[Any]:
        entries = enumerate(self.until(events.SequenceEndEvent))
        return [self.value((*path, number), event) for number, event in entries]

    def until(self, end: type[events.Event]) -> Iterator[events.Event]:
        """The events that begin an entry each, up to the end of the list or mapping."""
        return takewhile(lambda event: not isinstance(event, end), self.stream)

    def origin(self, event: events.Event) -> Origin:
        return Origin(self.name, event.start_mark.line + 1, self.folder)


class _Dumper(yaml.CSafeDumper):
    """The safe dumper, quoting by our own rules for plain scalars."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"'
    with suppress(ValueError):  # what looks like a number
        if text.isprintable() and type(_plain_value(text)) is str:
            style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML that the strict reader reads back unchanged; keys keep their order."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)

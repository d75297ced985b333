"""The header of a .ts file: comments (# or %), tags (@name value) and @data.

Descriptions in the archive do not always carry a comment sign, so other text is passed over, unless
it is a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from subquad.errors import DataError
from subquad.security.limits import COLUMNS, allow
from subquad.suggest import did_you_mean
from subquad_datasets.text.lines import fault, plain_number

TAGS = (
    "problemName",
    "timeStamps",
    "missing",
    "univariate",
    "dimension",
    "dimensions",
    "equalLength",
    "seriesLength",
    "classLabel",
    "targetLabel",
    "data",
)
_SPELLING = {tag.lower(): tag for tag in TAGS}

Tags = dict[str, tuple[int, str]]  # spelling -> (line, value)


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the rows have to keep to.

    Attributes:
        class_names: class strings, sorted without regard to case, so that the index is the label;
            none: no row has one.
        channels: C; None where the header does not say and no row was read yet.
        length: steps of every series; None where they may differ.
        equal_length: the header says that all series are equally long.
        data_line: the line of @data.
    """

    class_names: tuple[str, ...]
    channels: int | None = None
    length: int | None = None
    equal_length: bool = False
    data_line: int = 0

    @cached_property
    def labels(self) -> dict[str, int]:
        """The label of each class, by its name in small letters."""
        return {name.lower(): number for number, name in enumerate(self.class_names)}


def parse_header(path: Path, lines: Iterator[tuple[int, str]], *, labelled: bool = True) -> Header:
    """Read up to and including @data. There must be classes where the file is labelled.

    Raises:
        DataError: an unknown, repeated or unusable tag, no @classLabel, no @data, or data before
            it.
    """
    tags: Tags = {}
    number = 0
    for number, line in lines:
        if not line.startswith("@"):
            if _is_row(line):
                raise fault(path, number, "a row before @data; is the @data line missing?")
            continue
        tag, value = _tag(path, number, line)
        if tag == "data":
            return _header(path, number, tags, labelled)
        # a file derived from another may keep its name too
        if tag in tags and tag != "problemName":
            raise fault(path, number, f"@{tag} was already given on line {tags[tag][0]}")
        tags[tag] = (number, value)
    if number == 0:
        raise fault(path, 1, "the file is empty")
    raise fault(path, number, "the file ends without @data")


def _is_row(line: str) -> bool:
    first = line.replace(":", ",").partition(",")[0].strip()
    try:
        float(plain_number(first))
    except ValueError:
        return first == "?"
    return ":" in line


def _tag(path: Path, number: int, line: str) -> tuple[str, str]:
    name, _, value = line[1:].replace("\t", " ").partition(" ")
    spelling = _SPELLING.get(name.lower())
    if spelling is None:
        raise fault(path, number, f"unknown tag @{name[:40]}{did_you_mean(name[:40], TAGS)}")
    return spelling, value.strip()


def _header(path: Path, data_line: int, tags: Tags, labelled: bool) -> Header:
    if _flag(path, tags, "timeStamps"):
        raise fault(
            path, tags["timeStamps"][0], "@timeStamps true: series with time stamps cannot be read"
        )
    if "targetLabel" in tags:
        raise fault(
            path,
            tags["targetLabel"][0],
            "@targetLabel: a regression problem; classification needs @classLabel",
        )
    has_classes = labelled or tags.get("classLabel", (0, "false"))[1].lower() != "false"
    if has_classes and "classLabel" not in tags:
        raise fault(path, data_line, "no @classLabel before @data")
    equal_length = _flag(path, tags, "equalLength")
    return Header(
        class_names=_class_names(path, tags) if has_classes else (),
        channels=_count(path, tags, "dimensions") or _count(path, tags, "dimension"),
        length=_count(path, tags, "seriesLength") if equal_length else None,
        equal_length=equal_length,
        data_line=data_line,
    )


def _class_names(path: Path, tags: Tags) -> tuple[str, ...]:
    number, value = tags["classLabel"]
    switch, *names = value.split() or [""]
    if switch.lower() != "true" or not names:
        raise fault(
            path,
            number,
            "@classLabel must be: true, then the class names (classification needs them)",
        )
    allow(f"{path}:{number}", "classes", len(names), COLUMNS)
    ordered = sorted(names, key=str.lower)
    for first, second in pairwise(ordered):
        if first.lower() == second.lower():
            raise fault(
                path, number, f"@classLabel names {first!r} and {second!r}: the same class, twice"
            )
    return tuple(ordered)


def _flag(path: Path, tags: Tags, tag: str) -> bool:
    number, value = tags.get(tag, (0, "false"))
    if value.lower() not in ("true", "false"):
        raise fault(path, number, f"@{tag} must be true or false, not {value[:40]!r}")
    return value.lower() == "true"


def _count(path: Path, tags: Tags, tag: str) -> int | None:
    if tag not in tags:
        return None
    number, value = tags[tag]
    if not (value.isascii() and value.isdigit() and len(value) < 11 and 0 < int(value) < 2**31):
        raise fault(path, number, f"@{tag} must be a positive whole number, not {value[:40]!r}")
    return int(value)


def check_agree(train: Header, test: Header, path: Path) -> None:
    """Refuse a TEST file whose classes are not those of TRAIN."""
    of_train = {name.lower() for name in train.class_names}
    of_test = {name.lower() for name in test.class_names}
    if of_train != of_test:
        raise DataError(
            f"{path}: @classLabel differs from that of TRAIN: only TRAIN has "
            f"{sorted(of_train - of_test)}, only TEST has {sorted(of_test - of_train)}"
        )

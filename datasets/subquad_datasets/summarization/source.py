"""Articles with their summaries, read one by one from JSON lines, or generated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from subquad.errors import DataError
from subquad_datasets.invented import Stream, below, invent, source, zipf
from subquad_datasets.text.lines import fault, json_object, raw_lines
from subquad_datasets.text.source import fingerprint
from subquad_datasets.tokenized import TextSource

_FIELDS = (("article_text", "abstract_text", "section_names"), ("article", "abstract", ""))
"""Of Cohan et al. and of SumPubMed: the article, its summary and the section titles."""

_MARKUP = re.compile(r"</?S>")
_HEADING = re.compile(r"[A-Z][A-Z ,&/-]{3,}")
_HEADINGS = ("BACKGROUND", "METHODS", "RESULTS", "CONCLUSIONS")


class Article(NamedTuple):
    """One sample.

    Attributes:
        source: the article, one sentence or paragraph a line.
        target: its summary; "" where it is not known.
        titles: section titles, one a line; "" where there are none.
    """

    source: str
    target: str
    titles: str


class Articles(TextSource, Protocol):
    """The articles of one split; `texts` are source, target and titles of each in turn."""

    def notes(self) -> list[str]:
        """What a reader of a number must know of them, once all have been read."""
        ...

    def files(self) -> list[Path]: ...


@dataclass(frozen=True)
class ArticleFile:
    """JSON lines.

    Attributes:
        path: the file.
        fields: of source, target and titles; "" for those of a known layout.
        skip_bad: whether lines that cannot be used are left out.
        labelled: whether a summary is needed.
        bad: what is wrong with each line that was left out.
    """

    path: Path
    fields: tuple[str, str, str] = ("", "", "")
    skip_bad: bool = False
    labelled: bool = True
    bad: list[str] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        self.bad.clear()
        count = 0
        for number, raw in raw_lines(self.path):
            try:
                article = self._article(number, json_object(self.path, number, raw))
            except DataError as error:
                if not self.skip_bad:
                    raise
                self.bad.append(str(error))
                continue
            count += 1
            yield from article
        if not count:
            raise fault(
                self.path,
                1,
                f"no articles ({len(self.bad)} lines left out)" if self.bad else "no articles",
            )

    def files(self) -> list[Path]:
        return [self.path]

    def notes(self) -> list[str]:
        if not self.bad:
            return []
        first = self.bad[0].removeprefix(f"{self.path.parent}/")
        return [f"{len(self.bad)} lines of {self.path.name} left out, the first is {first}"]

    def fingerprint(self) -> str:
        return f"{fingerprint([self.path])} {self.fields} {self.skip_bad} {self.labelled}"

    def _article(self, number: int, row: dict[str, Any]) -> Article:
        known = next((names for names in _FIELDS if names[0] in row), _FIELDS[1])
        source_name, target_name, titles_name = (
            given or name for given, name in zip(self.fields, known, strict=True)
        )
        try:
            lines, titles = _lines(row, source_name)
            titles += [line for line in lines if _HEADING.fullmatch(line)]
            source = _full([line for line in lines if not _HEADING.fullmatch(line)], source_name)
            if self.labelled:
                target = _full(_lines(row, target_name)[0], target_name)
            else:
                target = ""
            if titles_name in row or self.fields[2]:
                titles, _ = _lines(row, titles_name)
        except ValueError as error:
            raise fault(self.path, number, str(error)) from None
        return Article(source, target, "\n".join(titles))


@dataclass(frozen=True)
class GeneratedArticles:
    """Articles of invented words: four sections of three sentences; the summary is the first
    sentence of the last two.

    So neither the article's start nor its end is the summary.
    """

    seed: int
    part: Stream
    size: int

    @cached_property
    def _words(self) -> list[str]:
        return [word.decode() for word in invent(self.seed, 500).words]

    def texts(self) -> Iterator[str]:
        table = zipf(len(self._words))
        for number in range(self.size):
            drawn = source(self.seed, self.part, number)
            counts = 4 + below(drawn.random_raw(12), 8)
            ids = table[below(drawn.random_raw(int(counts.sum())), len(table))]
            words = [self._words[word] for word in ids]
            ends = np.cumsum(counts)
            lines = [
                " ".join(words[end - count : end]) + "."
                for end, count in zip(ends, counts, strict=True)
            ]
            yield from ("\n".join(lines), f"{lines[6]}\n{lines[9]}", "\n".join(_HEADINGS))

    def files(self) -> list[Path]:
        return []

    def notes(self) -> list[str]:
        return []

    def fingerprint(self) -> str:
        return f"generated 1, seed {self.seed}, {self.size} articles of {self.part}"


def _lines(row: dict[str, Any], name: str) -> tuple[list[str], list[str]]:
    """A field's lines, and the titles that stand in it: those of a list of [title, text].

    Raises:
        ValueError: there is no such field, or no text in it.
    """
    if name not in row:
        raise ValueError(f"no field {name!r}; the row holds {sorted(row)}")
    value = row[name]
    titles = list[str]()
    if isinstance(value, list):
        parts = value
    else:
        parts = [value]
    if all(isinstance(part, list) and len(part) == 2 for part in parts):
        titles = [part[0] for part in parts]
        parts = [part[1] for part in parts]
    if wrong := [part for part in [*titles, *parts] if not isinstance(part, str)]:
        shown = json.dumps(wrong[0])[:40]
        raise ValueError(
            f"{name!r} must be a text, or a list of texts or of [title, text]; got {shown}"
        )
    lines = [line.strip() for part in parts for line in _MARKUP.sub("", part).split("\n")]
    return lines, titles


def _full(lines: list[str], name: str) -> str:
    text = "\n".join(lines).strip()
    if not text:
        raise ValueError(f"{name!r} is empty")
    return text

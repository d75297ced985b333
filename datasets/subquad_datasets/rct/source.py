"""Abstracts in the layout of PubMed RCT: `###ID`, then `LABEL<tab>sentence` in each line, then
an empty line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from subquad.data import NO_LABEL
from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.text.lines import fault, utf8_lines
from subquad_datasets.text.source import fingerprint

SECTIONS = ("BACKGROUND", "OBJECTIVE", "METHODS", "RESULTS", "CONCLUSIONS")


class Sentence(NamedTuple):
    """One line.

    Attributes:
        section: its label; "" where it is not known.
        text: the sentence.
    """

    section: str
    text: str


@dataclass(frozen=True)
class AbstractFile:
    """The abstracts of one split.

    Attributes:
        path: the file.
        labelled: whether each sentence needs its label.
    """

    path: Path
    labelled: bool = True

    def abstracts(self) -> Iterator[list[Sentence]]:
        """The sentences of each abstract.

        Raises:
            DataError: a line without label or sentence, a sentence before any `###ID`, an abstract
                without sentences.
        """
        sentences = list[Sentence]()
        start = 0
        for number, line in utf8_lines(self.path):
            if line.startswith("###"):
                if start:
                    yield self._full(sentences, start)
                sentences = []
                start = number
            elif line.strip():
                if not start:
                    raise fault(
                        self.path,
                        number,
                        "a sentence before the first abstract; a line such as ###12345 starts one",
                    )
                sentences.append(self._sentence(number, line))
        yield self._full(sentences, start or 1)

    def files(self) -> list[Path]:
        return [self.path]

    def notes(self) -> list[str]:
        return []

    def fingerprint(self) -> str:
        return f"{fingerprint([self.path])} {self}"

    def _full(self, sentences: list[Sentence], start: int) -> list[Sentence]:
        if not sentences:
            raise fault(self.path, start, "an abstract without sentences")
        return sentences

    def _sentence(self, number: int, line: str) -> Sentence:
        section, tab, text = line.partition("\t")
        if not self.labelled and not tab:
            section = ""
            text = line
        elif section not in SECTIONS:
            known = f"{', '.join(SECTIONS)}{did_you_mean(section, SECTIONS)}"
            raise fault(
                self.path,
                number,
                f"starts with {section[:20]!r}, must be a label and a tab; labels: {known}",
            )
        if not text.strip():
            raise fault(self.path, number, "the sentence is empty")
        return Sentence(section, text.strip())


@dataclass(frozen=True)
class SentenceFile(AbstractFile):
    """Each sentence with its neighbours: `place/number of sentences`, a blank, the sentence; then a
    line for each one before it and after it.

    Attributes:
        neighbours: how many of either.
        labels: of the sentences whose texts were read last; `pack` takes them away.
    """

    neighbours: int = 1
    labels: list[int] = field(default_factory=list, repr=False)

    def texts(self) -> Iterator[str]:
        self.labels.clear()
        for abstract in self.abstracts():
            for place, (section, text) in enumerate(abstract):
                near = abstract[max(0, place - self.neighbours) : place + self.neighbours + 1]
                others = [sentence.text for sentence in near if sentence is not abstract[place]]
                self.labels.append(SECTIONS.index(section) if self.labelled else NO_LABEL)
                yield "\n".join([f"{place + 1}/{len(abstract)} {text}", *others])


@dataclass(frozen=True)
class ConclusionFile(AbstractFile):
    """Each abstract without its conclusions, and its conclusions, a sentence a line, as `Articles`.

    Attributes:
        left: how many abstracts without conclusions, or without anything else, were left out, last
            time.
    """

    left: list[int] = field(default_factory=list, repr=False)

    def texts(self) -> Iterator[str]:
        count = used = 0
        for abstract in self.abstracts():
            if self.labelled:
                ends = [sentence.text for sentence in abstract if sentence.section == "CONCLUSIONS"]
            else:
                ends = []
            others = [sentence.text for sentence in abstract if sentence.section != "CONCLUSIONS"]
            if others and (ends or not self.labelled):
                used += 1
                yield from ("\n".join(others), "\n".join(ends), "")
            else:
                count += 1
        if not used:
            raise DataError(f"{self.path}: no abstract has conclusions and something before them")
        self.left[:] = [count]

    def notes(self) -> list[str]:
        reason = "abstracts left out: they have no conclusions, or nothing else"
        if any(self.left):
            return [f"{self.left[0]:,} {self.path.name} {reason}"]
        return []

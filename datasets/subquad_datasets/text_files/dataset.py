"""Texts of one's own as token ids. TEST is prepared apart. N texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import NO_LABEL, DataSpec, Split, SplitName, stratified_validation
from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.class_names import first_alike
from subquad_datasets.guesses import majority
from subquad_datasets.packed import PackedSplit, PackedWriter
from subquad_datasets.prepared import read_manifest
from subquad_datasets.text.lines import fault
from subquad_datasets.text.source import sums
from subquad_datasets.text.split import CutSplit
from subquad_datasets.text_files import Config
from subquad_datasets.text_files.source import Row, Texts, find_labelled
from subquad_datasets.tokenized import TokenizedDataset
from subquad_datasets.tokenizer import END_TOKEN, Tokenizer, encoded


class TextFiles(TokenizedDataset[Texts]):
    """Texts in classes, which are those of TRAIN and the validation part, sorted."""

    config: Config
    place = "text-files"

    def find(self) -> Mapping[str, Texts]:
        return find_labelled(Path(self.config.path), (self.config.text, self.config.labels))

    def pack(
        self, folder: Path, sources: Mapping[str, Texts], tokenizer: Tokenizer
    ) -> dict[str, Any]:
        training = "train" in sources
        if training:
            classes = self._named(sources)
        else:
            classes = self.facts["classes"]
        facts: dict[str, Any] = {"classes": list(classes)}
        with PackedWriter(folder, "texts", tokenizer.dtype) as writer:
            for name, source in sources.items():
                labels = list[int]()
                for flat, lengths in encoded(tokenizer, _noting(source, classes, labels)):
                    writer.extend(flat, lengths, np.array(labels))
                    facts[name] = facts.get(name, 0) + len(labels)
                    labels.clear()
                facts[f"sources of {name}"] = sums([path for path, _ in source.files])
        return facts

    def describe(self) -> DataSpec:
        trainval = self.load("trainval")
        most = self.config.max_len
        classes = tuple(self.facts["classes"])
        return DataSpec.tokens(
            most,
            len(self.tokenizer.pieces),
            num_classes=len(classes),
            class_names=classes,
            sizes=self._sizes(),
            end_token=END_TOKEN,
            token_bytes=self.tokenizer.token_bytes,
            text=self.tokenizer.text,
            notes=trainval.notes,
        )

    def load(self, name: SplitName) -> CutSplit:
        """Open a split.

        Raises:
            DataError: malformed or missing files, or too few texts of a class to cut a validation
                part.
        """
        if name == "test":
            return self._open(self.prepared("test", self.sources["test"]), "TEST")
        if name == "trainval":
            return self._open(self.training, "TRAIN")
        rows = self._cut[("train", "validation").index(name)]
        return self._open(self.training, "TRAIN", rows)

    def open_file(self, path: Path, *, labelled: bool) -> CutSplit:
        """A .csv or .jsonl file, or one text; where labelled, a .csv or .jsonl file."""
        if labelled and path.suffix == ".txt":
            raise DataError(f"{path}: a text has no class; give a .csv or .jsonl file")
        source = Texts(((path, ""),), (self.config.text, self.config.labels), labelled)
        return self._open(self.prepared("file", source), path.name)

    def files_read(self) -> tuple[str, ...]:
        parts = {name: source for name, source in self.sources.items() if name != "test"}
        return tuple(
            f"{name}: {self.facts[name]:,} texts of {source.described()}"
            for name, source in parts.items()
        )

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self.load("trainval"), split)

    def _open(self, folder: Path, name: str, rows: np.ndarray | None = None) -> CutSplit:
        most = self.config.max_len
        split = PackedSplit(folder, "texts", most, rows=rows)
        count = int((split.uncut_lengths > most).sum())
        if count:
            notes = (f"{count:,} of {len(split):,} {name} texts cut at {most} tokens",)
        else:
            notes = ()
        return CutSplit(split, most, notes)

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        facts = read_manifest(self.training).facts
        config = self.config
        whole = self.load("trainval")
        if "validation" in facts:
            return np.arange(facts["train"]), np.arange(facts["train"], len(whole))
        return stratified_validation(
            whole.labels, config.validation_fraction, config.split_seed, whole.digests()
        )

    def _sizes(self) -> dict[str, int]:
        sizes = {"trainval": len(self.load("trainval"))}
        # too few texts of a class: `trainval` still works, `load("train")` says why it does not
        try:
            return {**dict(zip(("train", "validation"), map(len, self._cut), strict=True)), **sizes}
        except DataError:
            return sizes

    @staticmethod
    def _named(sources: Mapping[str, Texts]) -> list[str]:
        first = dict[str, Row]()
        for source in sources.values():
            for row in source.rows():
                first.setdefault(row.label, row)
        if alike := first_alike(first):
            row = first[alike[1]]
            fault_text = f"class {alike[1]!r} looks like {alike[0]!r}; write them the same way"
            raise fault(row.path, row.line, fault_text)
        return sorted(first)


def _noting(source: Texts, classes: Sequence[str], labels: list[int]) -> Iterator[str]:
    """The texts; the label of each one that was taken is appended to `labels`."""
    for row in source.rows():
        if source.labelled and row.label not in classes:
            known = f"{', '.join(classes[:10])}{did_you_mean(row.label, classes)}"
            raise fault(row.path, row.line, f"class {row.label!r} is none of TRAIN: {known}")
        labels.append(classes.index(row.label) if source.labelled else NO_LABEL)
        yield row.text

"""Byte-level texts as a data set. Token ids: byte + 1, 0 is padding. TEST is packed apart and
opened only by `load`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from subquad.data import NO_LABEL, Dataset, DataSpec, Split, SplitName, stratified_validation
from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.guesses import majority
from subquad_datasets.packed import PackedSplit, PackedWriter
from subquad_datasets.prepared import check_prepared, prepare_once, read_manifest
from subquad_datasets.text import Config
from subquad_datasets.text.generate import GeneratedTexts
from subquad_datasets.text.lines import fault, json_rows
from subquad_datasets.text.source import Source, fingerprint, need_texts, sums
from subquad_datasets.text.split import CutSplit

VOCAB_SIZE = 257
VERSION = 2
Texts = Source | GeneratedTexts
_IMDB = {"neg": 12_500, "pos": 12_500}


class Text(Dataset):
    """Texts in classes, as bytes.

    Reference: Tay et al., 2021, section 2.2: bytes, no tokeniser; markup such as `<br />` is left
    as it is.
    Departure: published code has no validation part and selects on TEST (`protocol: paper` does
    that); here one is cut from TRAIN.
    """

    config: Config

    def prepare(self) -> None:
        """Pack TRAIN and TEST, so that a fault in either shows before anything is trained."""
        _ = self._train_folder
        self.prepared_test()

    def prepared_test(self) -> CutSplit:
        return self._test()

    def describe(self) -> DataSpec:
        facts = self._facts
        lengths = self._train.uncut_lengths
        return DataSpec.tokens(
            max_len=self.config.max_len,
            vocab_size=VOCAB_SIZE,
            num_classes=len(facts["classes"]),
            class_names=tuple(facts["classes"]),
            sizes=self._sizes(),
            benchmark="text",
            notes=(*self._kind(facts), *_blank(facts, "TRAIN"), *self._clipped(lengths, "TRAIN")),
        )

    def load(self, name: SplitName) -> CutSplit:
        """Open a split.

        Raises:
            DataError: malformed or missing files, or too few texts to cut a validation part.
        """
        if name == "test":
            return self._test()
        if name == "trainval":
            return CutSplit(self._train, self.config.cut)
        part = self._cut[("train", "validation").index(name)]
        return CutSplit(self._train.subset(part), self.config.cut)

    def open_file(self, path: Path, *, labelled: bool) -> CutSplit:
        """JSON lines with a "text" in each, and where labelled with a "label", the name of a
        class.
        """
        if labelled:
            classes = self._facts["classes"]
        else:
            classes = []
        key = {"set": "text", "version": VERSION, "file": fingerprint([path]), "labels": classes}
        folder = prepare_once(
            self.root / "lra-text", key, lambda folder: _pack_file(folder, path, classes)
        )
        split = PackedSplit(folder, "texts", self.config.max_len, shift=1)
        return CutSplit(
            split, self.config.cut, tuple(self._clipped(split.uncut_lengths, path.name))
        )

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self._train, split)

    def _sizes(self) -> dict[str, int]:
        sizes = {"trainval": len(self._train)}
        # too few texts of a class: `trainval` still works, `load("train")` says why it does not
        try:
            return {"train": len(self._cut[0]), "validation": len(self._cut[1]), **sizes}
        except DataError:
            return sizes

    def _need(self, split: Literal["train", "test"]) -> Texts:
        config = self.config
        if config.path is None:
            return GeneratedTexts(
                config.seed, split, config.train_size if split == "train" else config.test_size
            )
        return need_texts(Path(config.path), split)

    def _prepared(self, split: str, source: Texts) -> Path:
        utf8 = self.config.check_utf8
        key = {
            "set": "text",
            "version": VERSION,
            "split": split,
            "utf8": utf8,
            "files": source.fingerprint(),
        }
        return prepare_once(self.root / "lra-text", key, lambda folder: _pack(folder, source, utf8))

    @cached_property
    def _train_folder(self) -> Path:
        return self._prepared("train", self._need("train"))

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        return check_prepared(self._train_folder).facts

    @cached_property
    def _train(self) -> PackedSplit:
        return PackedSplit(self._train_folder, "texts", self.config.max_len, shift=1)

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        train = self._train
        config = self.config
        return stratified_validation(
            train.labels, config.validation_fraction, config.split_seed, train.digests()
        )

    def _test(self) -> CutSplit:
        folder = self._prepared("test", self._need("test"))
        facts = read_manifest(folder).facts
        classes = self._facts["classes"]
        if facts["classes"] != classes:
            raise DataError(
                f"{self.config.path}: TEST has the classes {facts['classes']}, TRAIN has {classes}"
            )
        split = PackedSplit(folder, "texts", self.config.max_len, shift=1)
        # one such note is enough
        if self._kind(self._facts):
            kind = []
        else:
            kind = self._kind(facts, "TEST: ")
        notes = (*kind, *_blank(facts, "TEST"), *self._clipped(split.uncut_lengths, "TEST"))
        return CutSplit(split, self.config.cut, notes)

    def _kind(self, facts: Mapping[str, Any], which: str = "") -> list[str]:
        """Whether these can be the IMDb reviews: classes and numbers are known, sums were never
        published.
        """
        if self.config.path is None:
            return ["stand-in data: generated texts of invented words, not the IMDb reviews"]
        counts = dict(zip(facts["classes"], facts["counts"], strict=True))
        if counts == _IMDB:
            return []
        sizes = ", ".join(f"{count} {name}" for name, count in counts.items())
        return [
            f"stand-in data: {which}texts of {Path(self.config.path).name} "
            f"({sizes}), not the IMDb reviews"
        ]

    def _clipped(self, lengths: np.ndarray, name: str) -> list[str]:
        count = int((lengths > self.config.cut).sum())
        if count:
            return [f"{count} of {len(lengths)} {name} texts cut at {self.config.cut} bytes"]
        return []


def _pack(folder: Path, source: Texts, utf8: bool) -> dict[str, Any]:
    counts = Counter[int]()
    blank = 0
    with PackedWriter(folder, "texts") as writer:
        for text, label in source.texts(utf8=utf8):
            writer.append(text, label)
            counts[label] += 1
            blank += text.isspace()
    sizes = [counts[label] for label in range(len(source.classes))]
    if 0 in sizes and isinstance(source, Source):
        raise DataError(
            f"{source.files[sizes.index(0)][0]}: no texts of class {source.classes[sizes.index(0)]}"
        )
    facts = {"classes": list(source.classes), "counts": sizes, "blank": blank}
    if isinstance(source, Source):
        facts["sources"] = sums([path for paths in source.files for path in paths])
    return facts


def _pack_file(folder: Path, path: Path, classes: Sequence[str]) -> dict[str, Any]:
    """Pack the texts of a user's file, with their labels where there are classes."""
    number = 0
    with PackedWriter(folder, "texts") as writer:
        for number, (text, *label) in json_rows(path, *("text", "label")[: 2 if classes else 1]):
            if label:
                name = label[0].decode()
            else:
                name = ""
            if classes and name not in classes:
                known = f"{', '.join(classes)}{did_you_mean(name, classes)}"
                raise fault(path, number, f"label {name!r} is no class of TRAIN: {known}")
            writer.append(text, classes.index(name) if classes else NO_LABEL)
    if not number:
        raise fault(path, 1, "the file is empty")
    return {}


def _blank(facts: Mapping[str, Any], name: str) -> list[str]:
    if facts["blank"]:
        return [f"{facts['blank']} {name} texts hold blanks only"]
    return []

"""Abstracts as a data set: sentences in classes, or conclusions to be written. TEST is prepared
apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import DataSpec, Split
from subquad_datasets.guesses import majority
from subquad_datasets.packed import PackedSplit, PackedWriter
from subquad_datasets.rct import Config
from subquad_datasets.rct.source import SECTIONS, ConclusionFile, SentenceFile
from subquad_datasets.summarization.dataset import ArticleDataset
from subquad_datasets.text.source import sums
from subquad_datasets.text.split import CutSplit
from subquad_datasets.tokenizer import END_TOKEN, Tokenizer, encoded


class PubmedRct(ArticleDataset):
    """Structured abstracts of randomised controlled trials.

    Reference: Dernoncourt and Lee, 2017.
    Departure: a sentence is classified by itself, with its place and its neighbours; the paper
    labels all sentences of an abstract together.
    """

    config: Config
    place = "pubmed-rct"
    forms = ("{}.txt",)

    def articles(self, path: Path, *, labelled: bool = True) -> SentenceFile | ConclusionFile:
        if self._classes:
            return SentenceFile(path, labelled, self.config.neighbours)
        return ConclusionFile(path, labelled)

    def pack(
        self, folder: Path, sources: Mapping[str, Any], tokenizer: Tokenizer
    ) -> dict[str, Any]:
        if self._classes:
            return _pack_sentences(folder, sources, tokenizer)
        return super().pack(folder, sources, tokenizer)

    def open(self, folder: Path, first: int, last: int) -> Any:
        if not self._classes:
            return super().open(folder, first, last)
        most = self.config.max_source
        return CutSplit(PackedSplit(folder, "texts", most, rows=np.arange(first, last)), most)

    def clipped(self, split: Any, name: str) -> list[str]:
        if not self._classes:
            return super().clipped(split, name)
        count = int((split.inner.uncut_lengths > split.cut).sum())
        if count:
            return [
                f"{count:,} of {len(split):,} {name} sentences "
                f"with neighbours cut at {split.cut} tokens"
            ]
        return []

    def describe(self) -> DataSpec:
        if not self._classes:
            return replace(super().describe(), benchmark="PubMed")
        return DataSpec.tokens(
            max_len=self.config.max_source,
            vocab_size=len(self.tokenizer.pieces),
            num_classes=len(SECTIONS),
            class_names=SECTIONS,
            sizes=self.sizes(),
            end_token=END_TOKEN,
            token_bytes=self.tokenizer.token_bytes,
            text=self.tokenizer.text,
            notes=self.notes(),
        )

    def reference_scores(self, split: Split) -> dict[str, Any]:
        """`majority` for sentences, always the commonest section; `lead-3` and `constant text`
        for conclusions.
        """
        if self._classes:
            return majority(self.load("trainval"), split)
        return super().reference_scores(split)

    @property
    def _classes(self) -> bool:
        return self.config.view == "sentences"


def _pack_sentences(
    folder: Path, sources: Mapping[str, SentenceFile], tokenizer: Tokenizer
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    with PackedWriter(folder, "texts", tokenizer.dtype) as writer:
        for name, sentences in sources.items():
            count = 0
            for flat, lengths in encoded(tokenizer, sentences.texts()):
                writer.extend(flat, lengths, np.array(sentences.labels))
                sentences.labels.clear()
                count += len(lengths)
            facts[name] = {"samples": count, "notes": [], "sources": sums(sentences.files())}
    return facts

"""Summaries of articles as a data set. TEST is prepared apart and opened only by `load`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from subquad.data import DataSpec, Split, SplitName
from subquad.errors import DataError
from subquad_datasets.lm.source import PART_NAMES, TextPart, find_parts
from subquad_datasets.packed import PackedColumn
from subquad_datasets.prepared import read_manifest
from subquad_datasets.summarization import Config, SourceTargetConfig
from subquad_datasets.summarization.guesses import guesses
from subquad_datasets.summarization.source import ArticleFile, Articles, GeneratedArticles
from subquad_datasets.summarization.split import ArticleSplit, article_spec, pack_articles
from subquad_datasets.tokenized import TokenizedDataset
from subquad_datasets.tokenizer import Tokenizer


class ArticleDataset(TokenizedDataset[Articles]):
    """A file of articles for each split of a folder.

    Attributes:
        forms: what a split's file is called, such as `{}.txt`.
    """

    forms: ClassVar[tuple[str, ...]]

    @abstractmethod
    def articles(self, path: Path, *, labelled: bool = True) -> Articles:
        """The articles of a file; without labels, those of a user."""

    def find(self) -> Mapping[TextPart, Articles]:
        path = Path(self.config.path)  # type: ignore[attr-defined]  (each config has its own)
        if not path.is_dir():
            raise DataError(f"dataset.params.path: {path} is not a folder")
        files = find_parts(path, *self.forms)
        if not files:
            wanted = " or ".join(form.format("train") for form in self.forms)
            raise DataError(f"dataset.params.path: {path} has no {wanted} (.xz, .gz, .bz2)")
        return {part: self.articles(file) for part, file in files.items()}

    def pack(
        self, folder: Path, sources: Mapping[str, Articles], tokenizer: Tokenizer
    ) -> dict[str, Any]:
        return pack_articles(folder, sources, tokenizer)

    def open(self, folder: Path, first: int, last: int) -> Any:
        """The split of these articles of a prepared folder: a dataclass with `notes`."""
        assert isinstance(self.config, SourceTargetConfig)
        return ArticleSplit(
            PackedColumn(folder, "texts"),
            first,
            last,
            self.config.max_source,
            self.config.max_target,
        )

    def clipped(self, split: Any, name: str) -> list[str]:
        """Notes on what is cut."""
        return split.clipped(name)

    def load(self, name: SplitName) -> Any:
        """Open a split: "trainval" is TRAIN and the validation part.

        Raises:
            DataError: missing files, or articles that cannot be used.
        """
        if name == "test":
            return self._apart("test", self.sources["test"])
        train = self.facts["train"]["samples"]
        both = sum(self.facts[part]["samples"] for part in self.facts)
        return self.open(
            self.training, train if name == "validation" else 0, train if name == "train" else both
        )

    def open_file(self, path: Path, *, labelled: bool) -> Any:
        """A file in the layout of the given ones; without labels, summaries are not looked at."""
        return self._apart("file", self.articles(path, labelled=labelled), path.name)

    def describe(self) -> DataSpec:
        return article_spec(
            self.load("train"), self.tokenizer, sizes=self.sizes(), notes=self.notes()
        )

    def sizes(self) -> dict[str, int]:
        """Samples of each split but TEST."""
        names: tuple[SplitName, ...] = ("train", "validation", "trainval")
        return {name: len(self.load(name)) for name in names}

    def notes(self) -> tuple[str, ...]:
        """What a reader of a number needs to know of TRAIN and the validation part."""
        parts: tuple[SplitName, ...] = ("train", "validation")
        return tuple(
            note
            for part in parts
            for note in (*self.facts[part]["notes"], *self.clipped(self.load(part), part))
        )

    def reference_scores(self, split: Split) -> dict[str, Any]:
        """`lead-3`, the article's first three sentences, and `constant text`, the same for every
        article.
        """
        assert isinstance(split, ArticleSplit)
        return guesses(split, self.load("train"), self.tokenizer.text, self.root)

    def _apart(self, name: str, articles: Articles, called: str = "") -> Any:
        folder = self.prepared(name, articles)
        facts = read_manifest(folder).facts[name]
        split = self.open(folder, 0, facts["samples"])
        return replace(split, notes=(*facts["notes"], *self.clipped(split, called or name)))


class PubmedSummarization(ArticleDataset):
    """The summary of an article, of its text and perhaps of its section titles.

    Reference: Cohan et al., 2018.
    Departure: articles are not cut to the sections of the first level; titles that stand in a text
    as lines in capitals are taken out of it (SumPubMed).
    """

    config: Config
    place = "summarization"
    forms = ("{}.jsonl", "{}.txt", "{}.json")

    def find(self) -> Mapping[TextPart, Articles]:
        config = self.config
        if config.path is not None:
            return super().find()
        return {
            part: GeneratedArticles(config.seed, part, getattr(config, f"{part}_size"))
            for part in PART_NAMES
        }

    def articles(self, path: Path, *, labelled: bool = True) -> ArticleFile:
        config = self.config
        fields = config.source_field or "", config.target_field or "", config.titles_field or ""
        return ArticleFile(path, fields, config.skip_bad, labelled)

    def open(self, folder: Path, first: int, last: int) -> ArticleSplit:
        return replace(
            super().open(folder, first, last),
            max_titles=self.config.max_titles if self.config.titles else 0,
        )

    def describe(self) -> DataSpec:
        if self.config.titles and not self.facts["train"]["titles"]:
            raise DataError(
                "dataset.params.titles: no article of TRAIN has section titles; use titles=false"
            )
        return replace(super().describe(), benchmark="PubMed" if self.config.path else "")

    def notes(self) -> tuple[str, ...]:
        if self.config.path:
            stand_in = ()
        else:
            stand_in = ("stand-in data: generated articles of invented words",)
        return (*stand_in, *super().notes())

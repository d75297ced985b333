"""Summaries of articles as a data set. TEST is prepared apart and opened only by `load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from subquad.data import DataSpec, Split, SplitName
from subquad.errors import DataError
from subquad_datasets.lm.source import TextPart, find_parts
from subquad_datasets.packed import PackedColumn
from subquad_datasets.prepared import read_manifest
from subquad_datasets.summarization import Config
from subquad_datasets.summarization.lead import lead_3
from subquad_datasets.summarization.source import ArticleFile, Articles, GeneratedArticles
from subquad_datasets.summarization.split import ArticleSplit, article_spec, pack_articles
from subquad_datasets.tokenized import TokenizedDataset
from subquad_datasets.tokenizer import Tokenizer


class PubmedSummarization(TokenizedDataset[Articles]):
    """The summary of an article, of its text and perhaps of its section titles.

    Reference: Cohan et al., 2018.
    Departure: articles are not cut to the sections of the first level; titles that stand in a text as lines in capitals
    are taken out of it (SumPubMed).
    """

    config: Config
    place = "summarization"

    def find(self) -> Mapping[TextPart, Articles]:
        config = self.config
        if config.path is None:
            sizes: dict[TextPart, int] = {
                "train": config.train_size,
                "validation": config.validation_size,
                "test": config.test_size,
            }
            return {part: GeneratedArticles(config.seed, part, size) for part, size in sizes.items()}
        path = Path(config.path)
        if not path.is_dir():
            raise DataError(f"dataset.params.path: {path} is not a folder")
        found = find_parts(path, "{}.jsonl", "{}.txt", "{}.json")
        if not found:
            raise DataError(f"dataset.params.path: {path} has no train.jsonl or train.txt (.xz, .gz, .bz2)")
        return {part: ArticleFile(file, self._fields, config.skip_bad) for part, file in found.items()}

    def pack(self, folder: Path, sources: Mapping[str, Articles], tokenizer: Tokenizer) -> dict[str, Any]:
        return pack_articles(folder, sources, tokenizer)

    def describe(self) -> DataSpec:
        train, stand_in = self.load("train"), "stand-in data: generated articles of invented words"
        if self.config.titles and not self.facts["train"]["titles"]:
            raise DataError("dataset.params.titles: no article of TRAIN has section titles; use titles=false")
        notes = [] if self.config.path else [stand_in]
        for part in ("train", "validation"):
            notes += [*self.facts[part]["notes"], *self.load(part).clipped(part)]
        names: tuple[SplitName, ...] = ("train", "validation", "trainval")
        sizes = {name: len(self.load(name)) for name in names}
        return article_spec(train, self.tokenizer, sizes=sizes, notes=tuple(notes))

    def load(self, name: SplitName) -> ArticleSplit:
        """Open a split: "trainval" is TRAIN and the validation part.

        Raises:
            DataError: missing files, or articles that cannot be used.
        """
        if name == "test":
            return self._apart("test", self.sources["test"])
        train, validation = (self.facts[part]["articles"] for part in ("train", "validation"))
        first, last = {"train": (0, train), "validation": (train, train + validation)}.get(
            name, (0, train + validation)
        )
        return self._split(self.training, first, last)

    def open_file(self, path: Path, *, labelled: bool) -> ArticleSplit:
        """JSON lines with the same fields; without labels, the summaries are not looked at."""
        return self._apart("file", ArticleFile(path, self._fields, labelled=labelled))

    def reference_scores(self, split: Split) -> dict[str, Any]:
        """`lead-3`: the article's first three sentences."""
        assert isinstance(split, ArticleSplit)
        return lead_3(split, self.tokenizer.text, self.root)

    @property
    def _fields(self) -> tuple[str, str, str]:
        config = self.config
        return config.source_field or "", config.target_field or "", config.titles_field or ""

    def _apart(self, name: str, articles: Articles) -> ArticleSplit:
        folder = self.prepared(name, articles)
        facts = read_manifest(folder).facts[name]
        split = self._split(folder, 0, facts["articles"])
        return replace(split, notes=(*facts["notes"], *split.clipped(name)))

    def _split(self, folder: Path, first: int, last: int) -> ArticleSplit:
        config = self.config
        titles = config.max_titles if config.titles else 0
        return ArticleSplit(PackedColumn(folder, "texts"), first, last, config.max_source, config.max_target, titles)

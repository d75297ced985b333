"""Summaries of articles: PubMed as Cohan et al. give it, SumPubMed, other JSON lines, or a
stand-in. Light half.

Reference: Cohan et al., 2018, A discourse-aware attention model for abstractive summarization of
long documents, arXiv:1804.05685; Gupta et al., 2021, SumPubMed.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import model_validator

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.lm import TokenizedConfig
from subquad_datasets.origin import GENERATED, READ


class SourceTargetConfig(TokenizedConfig):
    """How much of an article and of its summary a model sees."""

    max_source: int = param(
        4096, meaning="padded length of articles; longer ones lose their end", unit="tokens", ge=1
    )
    max_target: int = param(
        512,
        meaning="padded length of summaries to learn from, end token included; longer ones lose "
        "their end and have no end token. ROUGE always takes the whole reference",
        unit="tokens",
        ge=1,
    )

    @model_validator(mode="after")
    def _lossless(self) -> SourceTargetConfig:
        if self.tokenizer == "word":
            raise ValueError(
                "tokenizer word loses unknown words, also of references: use byte or bpe"
            )
        return self


class Config(SourceTargetConfig):
    """Where the articles are, and which of their fields are read."""

    path: str | None = param(
        None,
        meaning="folder with {train,val,test}.jsonl or .txt, an article in each line as a "
        "JSON object (.xz, .gz, "
        ".bz2); null: a generated stand-in",
        path=True,
        min_length=1,
    )
    source_field: str | None = param(
        None,
        meaning="field of the article: a text, a list of texts, or of [title, text]; null: "
        "article_text or article",
        when=READ,
    )
    target_field: str | None = param(
        None, meaning="field of its summary, likewise; null: abstract_text or abstract", when=READ
    )
    titles_field: str | None = param(
        None,
        meaning="field of the section titles, a list; null: "
        "section_names, or those that the article has itself",
        when=READ,
    )
    titles: bool = param(False, meaning="section titles as a second modality, inputs_titles")
    max_titles: int = param(
        128,
        meaning="padded length of all titles of an article",
        unit="tokens",
        ge=1,
        when={"titles": (True,)},
    )
    skip_bad: bool = param(
        False,
        meaning="leave out lines that cannot be used, and count them, rather than refuse them",
        when=READ,
    )
    train_size: int = param(
        1000, meaning="articles of TRAIN generated", ge=1, le=1_000_000, when=GENERATED
    )
    validation_size: int = param(
        100, meaning="articles for validation generated", ge=1, le=1_000_000, when=GENERATED
    )
    test_size: int = param(
        100,
        meaning="articles of the sealed test split generated",
        ge=1,
        le=1_000_000,
        when=GENERATED,
    )
    seed: int = param(
        0,
        meaning="seed of generated articles; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )

    @staticmethod
    def label(path: str | None, target_field: str | None) -> str:
        if path:
            return "-".join([Path(path).name, *filter(None, [target_field])])
        return ""


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.summarization.dataset:PubmedSummarization",
    summary="Summaries of articles: PubMed (Cohan et al.), "
    "SumPubMed, any JSON lines, or a generated stand-in",
    paper="Cohan et al., 2018, A discourse-aware attention model for abstractive "
    "summarization, arXiv:1804.05685",
    inputs="tokens",
    targets=("sequence",),
)

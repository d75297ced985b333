"""LRA Retrieval: do two documents belong together? Byte-level pairs: AAN, others or a stand-in.
Light half.

Reference: Tay et al., 2021, Long Range Arena, arXiv:2011.04006, section 2.3; Radev et al., 2013
(the AAN corpus).
"""

from __future__ import annotations

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.origin import GENERATED, READ
from subquad_datasets.text import LengthConfig


class Config(LengthConfig):
    """Where the pairs are and how much of each document is read."""

    path: str | None = param(
        None,
        meaning="folder with new_aan_pairs.{train,eval,test}.tsv, {train,eval,test}.tsv (label, "
        "text, text), or documents with two parts: {train,eval,test}.jsonl or "
        "<split>/<part>/*.txt; null: a generated stand-in",
        path=True,
        min_length=1,
    )
    first: str = param(
        "article", meaning="documents: field or folder of the first part", min_length=1, when=READ
    )
    second: str = param(
        "abstract", meaning="documents: field or folder of the second part", min_length=1, when=READ
    )
    pair_seed: int = param(
        0,
        meaning="documents: seed for drawing the pairs that do not belong together",
        ge=0,
        lt=2**32,
        when=READ,
    )
    check_utf8: bool = param(
        True, meaning="refuse texts that are not UTF-8; false takes any bytes", when=READ
    )
    train_size: int = param(
        20_000, meaning="pairs to train on generated", ge=1, le=1_000_000, when=GENERATED
    )
    validation_size: int = param(
        2_500, meaning="pairs for validation generated", ge=1, le=1_000_000, when=GENERATED
    )
    test_size: int = param(
        2_500,
        meaning="pairs of the sealed test split generated",
        ge=1,
        le=1_000_000,
        when=GENERATED,
    )
    seed: int = param(
        0,
        meaning="seed of generated pairs; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.retrieval.dataset:Retrieval",
    summary="LRA Retrieval: byte-level pairs of documents, the AAN files or a stand-in",
    paper="Tay et al., 2021, Long Range Arena: a benchmark "
    "for efficient transformers, arXiv:2011.04006",
    inputs="tokens",
    targets=("pair",),
)

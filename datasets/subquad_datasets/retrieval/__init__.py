"""LRA Retrieval: do two documents belong together? Byte-level pairs, the AAN files or others. Light half.

Reference: Tay et al., 2021, Long Range Arena, arXiv:2011.04006, section 2.3; Radev et al., 2013 (the AAN corpus).
"""

from __future__ import annotations

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.text import LengthConfig


class Config(LengthConfig):
    """Where the pairs are and how much of each document is read."""

    path: str = param(
        meaning="folder with new_aan_pairs.{train,eval,test}.tsv, {train,eval,test}.tsv (label, text, text), or the "
        "stand-in: {train,eval,test}.jsonl of documents with two parts, or <split>/<part>/*.txt",
        path=True,
        min_length=1,
    )
    first: str = param("article", meaning="stand-in: field or folder of a document's first part", min_length=1)
    second: str = param("abstract", meaning="stand-in: field or folder of its second part", min_length=1)
    pair_seed: int = param(0, meaning="stand-in: draw of the pairs that do not belong together", ge=0, lt=2**32)
    check_utf8: bool = param(True, meaning="refuse texts that are not UTF-8; false takes any bytes")


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.retrieval.dataset:Retrieval",
    summary="LRA Retrieval: byte-level pairs of documents, the AAN files or a stand-in",
    paper="Tay et al., 2021, Long Range Arena: a benchmark for efficient transformers, arXiv:2011.04006",
    tasks=("pair-classification",),
    modality="tokens",
)

"""Structured abstracts of PubMed RCT: which section is a sentence of, or what does the study
conclude? Light half.

Reference: Dernoncourt and Lee, 2017, PubMed 200k RCT: a dataset for sequential sentence
classification in medical abstracts, arXiv:1710.06071.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from subquad.plugin import DatasetPlugin, inherited, param
from subquad_datasets.summarization import SourceTargetConfig


class Config(SourceTargetConfig):
    """Where the abstracts are, and what is asked of them."""

    path: str = param(
        meaning="folder with {train,dev,test}.txt (.xz, .gz, "
        ".bz2), as PubMed_20k_RCT and PubMed_200k_RCT come",
        path=True,
        min_length=1,
    )
    view: Literal["sentences", "conclusions"] = param(
        "sentences",
        meaning="sentences: the section of each sentence, target class; conclusions: an "
        "abstract's conclusions from the rest of it, target sequence",
    )
    neighbours: int = param(
        1,
        meaning="sentences: how many before it, and after it, a model sees too",
        ge=0,
        when={"view": ("sentences",)},
    )
    max_source: int = param(
        1024, meaning="padded length of inputs; longer ones lose their end", unit="tokens", ge=1
    )

    max_target: int = inherited(SourceTargetConfig, "max_target", when={"view": ("conclusions",)})

    @staticmethod
    def label(path: str, view: str) -> str:
        return f"{Path(path).name}-{view}"


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.rct.dataset:PubmedRct",
    summary="PubMed 20k/200k RCT: sections of sentences, or the conclusions of abstracts",
    paper="Dernoncourt and Lee, 2017, PubMed 200k RCT, arXiv:1710.06071",
    inputs="tokens",
    targets=("class", "sequence"),
)

"""ListOps of the Long Range Arena: the value of a nested list of MIN, MAX, MED and SM. Light half.

Read from the official files, or generated: the same distribution, faster, seeded.
Reference: Nangia and Bowman, 2018, arXiv:1804.06028; Tay et al., 2021, arXiv:2011.04006, section
2.2.1.
"""

from __future__ import annotations

from pydantic import model_validator

from subquad.plugin import Config as PluginConfig
from subquad.plugin import DatasetPlugin, param
from subquad_datasets.origin import GENERATED


class Config(PluginConfig):
    """Where the official files are, or what to generate. The defaults generate what the official
    generator would.
    """

    path: str | None = param(
        None,
        meaning="folder of the official release, or the one with "
        "basic_train.tsv, basic_val.tsv, basic_test.tsv; null: generate",
        path=True,
        min_length=1,
    )
    train_size: int = param(
        96_000, meaning="sequences to train on", ge=1, le=10_000_000, when=GENERATED
    )
    validation_size: int = param(
        2_000, meaning="sequences for validation", ge=1, le=10_000_000, when=GENERATED
    )
    test_size: int = param(
        2_000, meaning="sequences of the sealed test split", ge=1, le=10_000_000, when=GENERATED
    )
    min_length: int = param(
        500,
        meaning="sequences are longer than this",
        unit="tokens",
        ge=0,
        le=1_000_000,
        when=GENERATED,
    )
    max_length: int = param(
        2_000,
        meaning="sequences are shorter than this",
        unit="tokens",
        ge=2,
        le=1_000_000,
        when=GENERATED,
    )
    max_depth: int = param(
        10,
        meaning="depth at which every node is a digit; the root has depth 1",
        ge=1,
        le=50,
        when=GENERATED,
    )
    max_args: int = param(
        10, meaning="most arguments of an operator; the fewest are 2", ge=2, le=31, when=GENERATED
    )
    seed: int = param(
        0,
        meaning="seed of the data; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )
    processes: int | None = param(
        None,
        meaning="processes that generate; null: one for each CPU. The data do not depend on it",
        ge=1,
        le=1024,
        when=GENERATED,
    )
    max_len: int | None = param(
        None,
        meaning="padded length; longer sequences are cut; "
        "null: max_length, for official files 2000",
        unit="tokens",
        ge=1,
    )

    @model_validator(mode="after")
    def _possible(self) -> Config:
        if self.max_length - self.min_length < 2:
            raise ValueError(
                f"min_length {self.min_length} and max_length {self.max_length} are both excluded "
                f"and leave no length between: use max_length {self.min_length + 2} or more"
            )
        if (longest := self._longest()) <= self.min_length:
            raise ValueError(
                f"min_length {self.min_length}: the longest expression with "
                f"max_depth {self.max_depth} and max_args "
                f"{self.max_args} has {longest} tokens; lower min_length or raise max_depth"
            )
        return self

    def _longest(self) -> int:
        length = 1
        for _ in range(self.max_depth - 1):
            length = min(2 + self.max_args * length, 10**9)
        return length


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.listops.dataset:ListOps",
    summary="Long Range Arena: value of nested list "
    "operations, from the official files or generated",
    paper="Tay et al., 2021, Long Range Arena, arXiv:2011.04006; "
    "Nangia and Bowman, 2018, arXiv:1804.06028",
    inputs="tokens",
    targets=("class", "next-token"),
)

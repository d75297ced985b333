"""Texts of one's own in classes, with a tokenizer. Light half."""

from __future__ import annotations

from pathlib import PurePath

from pydantic import model_validator

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.lm import TokenizedConfig


class Config(TokenizedConfig):
    """Where the texts are, how they become tokens, and how a validation part is cut."""

    path: str = param(
        meaning="folder with train/<class>/*.txt and test/<class>/*.txt, or with train.csv and "
        "test.csv, or .tsv, or .jsonl (.xz, .gz, .bz2); optionally validation",
        path=True,
        min_length=1,
    )
    text: str = param(
        "text", meaning="column or field of the text, in .csv and .jsonl", min_length=1
    )
    labels: str = param(
        "label", meaning="column or field of the class, in .csv and .jsonl", min_length=1
    )
    max_len: int = param(
        512, meaning="padded length; longer texts lose their end", unit="tokens", ge=1, le=1_000_000
    )
    validation_fraction: float = param(
        0.1,
        meaning="share of TRAIN, by class, that selects checkpoints, where no validation is given",
        gt=0,
        lt=1,
    )
    split_seed: int = param(0, meaning="seed for drawing the validation part", ge=0, lt=2**32)

    @staticmethod
    def label(path: str, tokenizer: str, vocab_size: int | None) -> str:
        name = PurePath(path).name
        if tokenizer == "byte":
            return name
        return f"{name}-{tokenizer}{vocab_size or ''}"

    @model_validator(mode="after")
    def _apart(self) -> Config:
        if self.text == self.labels:
            raise ValueError(f"text and labels are both {self.text!r}: give each a column")
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.text_files.dataset:TextFiles",
    summary="texts of one's own in classes, from folders, CSV "
    "or JSON lines, as bytes, byte pairs or words",
    inputs="tokens",
    targets=("class",),
    from_python="subquad_datasets.text_files.from_python:write_texts",
)

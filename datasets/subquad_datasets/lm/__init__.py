"""Language modelling: the next token of any text files, or of a small stand-in. Light half.

Reference: Merity et al., 2016, Pointer sentinel mixture models, arXiv:1609.07843 (the layout of
WikiText).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from subquad.plugin import DatasetConfig, DatasetPlugin, Not, param
from subquad_datasets.origin import GENERATED, READ


class TokenizedConfig(DatasetConfig):
    """How text becomes tokens."""

    tokenizer: Literal["byte", "bpe", "word"] = param(
        "byte",
        meaning="byte: the 256 bytes, nothing to learn; bpe: byte-level byte-pair "
        "encoding, learnt on TRAIN; word: "
        "words between blanks, as in WikiText, others are <unk>",
    )
    vocab_size: int | None = param(
        None,
        meaning="bpe, word: size of the vocabulary; null: "
        "8192 for bpe, all words of TRAIN for word",
        ge=300,
        when={"tokenizer": Not("byte")},
    )


class Config(TokenizedConfig):
    """Where the text is, how it is cut into windows, and how it becomes tokens."""

    path: str | None = param(
        None,
        meaning="text file; folder with a file for each of train, validation (or valid, val, dev) "
        "and test, named as train.txt or wiki.train.tokens; or folder of other text files; all "
        "also .xz, .gz, .bz2; null: a generated stand-in",
        path=True,
        min_length=1,
    )
    context: int = param(256, meaning="tokens of a window", unit="tokens", ge=2, le=1_000_000)
    stride: int | None = param(
        None,
        meaning="tokens from one evaluated window to the next: each token is scored once, with at "
        "least context - stride tokens before it; null: context",
        unit="tokens",
        ge=1,
    )
    validation_fraction: float = param(
        0.05, meaning="one text: share before TEST that selects checkpoints", gt=0, lt=1, when=READ
    )
    test_fraction: float = param(
        0.05, meaning="one text: share at its end that is the sealed TEST", gt=0, lt=1, when=READ
    )
    train_size: int = param(
        500,
        meaning="texts of TRAIN generated, of about 1,100 bytes each",
        ge=1,
        le=1_000_000,
        when=GENERATED,
    )
    validation_size: int = param(
        50, meaning="texts for validation generated", ge=1, le=1_000_000, when=GENERATED
    )
    test_size: int = param(
        50, meaning="texts of the sealed test split generated", ge=1, le=1_000_000, when=GENERATED
    )
    seed: int = param(
        0,
        meaning="seed of generated texts; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )

    @staticmethod
    def label(path: str | None, tokenizer: str, vocab_size: int | None) -> str:
        if path:
            name = Path(path).name.partition(".")[0]
        else:
            name = "text-lm"
        if tokenizer == "byte":
            return name
        return f"{name}-{tokenizer}{vocab_size or ''}"

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.stride is not None and self.stride > self.context:
            raise ValueError(
                f"stride {self.stride} is more than context "
                f"{self.context}: some tokens had no score"
            )
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError(
                "validation_fraction and test_fraction leave nothing to train on: "
                "use less than 1 together"
            )
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.lm.dataset:TextLm",
    summary="Language modelling on any text files, also in "
    "WikiText's layout, as bytes, byte pairs or words",
    inputs="tokens",
    targets=("next-token",),
)

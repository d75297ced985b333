"""LRA Text: byte-level document classification: IMDb reviews, any folder of texts, or a stand-in.
Light half.

Reference: Tay et al., 2021, Long Range Arena, arXiv:2011.04006, section 2.2; Maas et al., 2011 (the
reviews).
"""

from __future__ import annotations

from pydantic import model_validator

from subquad.plugin import Config as PluginConfig
from subquad.plugin import DatasetPlugin, param
from subquad_datasets.origin import GENERATED, READ


class LengthConfig(PluginConfig):
    """How many bytes of a text become tokens, and what they are padded to."""

    max_len: int = param(
        4096, meaning="padded length; longer texts lose their end", unit="bytes", ge=1, le=1_000_000
    )
    max_tokens: int | None = param(
        None,
        meaning="bytes read of a text, the rest up to max_len is padding; null: max_len. "
        "Published code reads 4000 of 4096 and 1000 of 1024",
        unit="bytes",
        ge=1,
    )

    @property
    def cut(self) -> int:
        """Bytes read of a text."""
        return self.max_tokens or self.max_len

    @model_validator(mode="after")
    def _fits(self) -> LengthConfig:
        if self.cut > self.max_len:
            raise ValueError(
                f"max_tokens {self.max_tokens} is more than max_len "
                f"{self.max_len}: use max_tokens {self.max_len} "
                "or less, or a larger max_len"
            )
        return self


class Config(LengthConfig):
    """Where the texts are, how much of them is read, and how a validation part is cut."""

    path: str | None = param(
        None,
        meaning="folder with <split>/<class>/*.txt (aclImdb as it comes) or "
        "<split>_<class>.jsonl (.xz, .gz, .bz2) "
        'with a "text" in each row; splits train and test; null: a generated stand-in',
        path=True,
        min_length=1,
    )
    validation_fraction: float = param(
        0.1, meaning="share of TRAIN, by class, that selects checkpoints", gt=0, lt=1
    )
    split_seed: int = param(0, meaning="seed for drawing the validation part", ge=0, lt=2**32)
    check_utf8: bool = param(
        True, meaning="refuse texts that are not UTF-8; false takes any bytes", when=READ
    )
    train_size: int = param(
        25_000, meaning="texts of TRAIN generated", ge=2, le=1_000_000, when=GENERATED
    )
    test_size: int = param(
        25_000,
        meaning="texts of the sealed test split generated",
        ge=1,
        le=1_000_000,
        when=GENERATED,
    )
    seed: int = param(
        0,
        meaning="seed of generated texts; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.text.dataset:Text",
    summary="LRA Text: byte-level classification of IMDb reviews, "
    "any folder of texts, or a generated stand-in",
    paper="Tay et al., 2021, Long Range Arena: a benchmark "
    "for efficient transformers, arXiv:2011.04006",
    inputs="tokens",
    targets=("class", "next-token"),
)

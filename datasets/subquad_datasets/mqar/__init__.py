"""Multi-query associative recall, keys and values as tokens of their own: a control task. Light
half.

Harder than `recall`, where a token is a whole pair: here a mixer has to bind each value to the key
beside it, and then to look the queried keys up. Read at a query, `identity` sees the key alone,
whose value is drawn independently, so it stays at chance, 1 / num_values.

Reference: Arora et al., 2023, Zoology, arXiv:2312.04927, section 3 and its released data. What
differs from the published task: docs/reference/datasets/mqar.md.
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.generated import GeneratedConfig

POWER_A = 0.01


class Config(GeneratedConfig):
    """Parameters of multi-query associative recall."""

    length: int = param(17, meaning="tokens in a sequence", symbol="N", ge=3, le=1_000_000)
    num_pairs: int = param(
        4, meaning="key-value pairs, two tokens each", symbol="D", ge=1, le=100_000
    )
    labels: Literal["every", "last"] = param(
        "every",
        meaning="what is labelled: every query at its position, pairs in front, as published; or "
        "the sequence, moved right until the last query ends it, by that query's value",
    )
    num_queries: int | None = param(
        None,
        meaning="pairs that are asked for; null: all of them, or one where labels is last",
        ge=1,
    )
    num_keys: int = param(
        8, meaning="different keys; those of one sequence are distinct", ge=1, le=1_000_000
    )
    num_values: int = param(
        8,
        meaning="different values, the classes; those of one sequence are distinct",
        ge=2,
        le=1_000_000,
    )
    power_a: float = param(
        POWER_A,
        meaning="a query stands in the s-th place after the pairs with probability in "
        "proportion to s^(a - 1): "
        "1 is uniform, smaller is nearer",
        symbol="a",
        ge=0,
        le=10,
    )
    filler: Literal["blank", "random"] = param(
        "blank",
        meaning="other places: one token for all, or random "
        "values and keys that the sequence does not pair",
    )
    train_size: int = param(16_384, meaning="sequences to train on", ge=1, le=10_000_000)

    @property
    def queries(self) -> int:
        """Queries in each sequence, Q."""
        return self.num_queries or (self.num_pairs if self.labels == "every" else 1)

    @property
    def places(self) -> int:
        """Places after the pairs where a query may stand: every second position."""
        return (self.length - 1 - 2 * self.num_pairs) // 2 + 1

    @model_validator(mode="after")
    def _possible(self) -> Config:
        for name, pool in (("num_keys", self.num_keys), ("num_values", self.num_values)):
            if self.num_pairs > pool:
                raise ValueError(
                    f"num_pairs {self.num_pairs} is more than {name} {pool}, but "
                    "those of a sequence are distinct: "
                    f"use {name} {self.num_pairs} or more"
                )
        if self.length < (least := 2 * self.num_pairs + 2 * self.queries - 1):
            raise ValueError(
                f"length {self.length} is too short for {self.num_pairs} pairs and {self.queries} "
                f"queries, two tokens for each but the last query: use length {least} or more"
            )
        if self.queries > self.num_pairs:
            raise ValueError(
                f"num_queries {self.num_queries} is more than num_pairs "
                f"{self.num_pairs}, but a pair is asked for once"
            )
        return self

    @model_validator(mode="after")
    def _refuse(self) -> Config:
        if self.places == self.queries and not self.is_default("power_a"):
            full = (
                f"a query at every place (length {self.length}, num_pairs "
                f"{self.num_pairs}, queries {self.queries})"
            )
            raise ValueError(self.no_effect("power_a", full, "a larger length"))
        if self.length == 2 * self.num_pairs + 1 and not self.is_default("filler"):
            full = (
                f"length {self.length} and num_pairs {self.num_pairs}, which leave no place to fill"
            )
            raise ValueError(self.no_effect("filler", full, "a larger length"))
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.mqar.dataset:Mqar",
    summary="control task: multi-query associative recall, "
    "each query labelled; chance without mixing",
    paper="Arora et al., 2023, Zoology: measuring and improving recall in efficient "
    "language models, arXiv:2312.04927",
    inputs="tokens",
    targets=("positions", "class", "next-token"),
)

"""Sparse Transformer: what is near, and regularly placed tokens that are far. Light half."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param


class Config(AttentionConfig):
    """Parameters of a Sparse Transformer's attention."""

    pattern: Literal["fixed", "strided"] = param(
        "fixed",
        meaning="far tokens that are seen: the last of each block, or those at a multiple "
        "of `block` from the query",
        search=("fixed", "strided"),
    )
    block: int | None = param(
        None,
        meaning="tokens of a block, the stride; null: what is cheapest for the longest sequence",
        symbol="l",
        ge=1,
    )
    summary: int = param(
        8,
        meaning="last tokens of a block that all see",
        symbol="c",
        ge=1,
        search=(4, 8, 16, 32),
        when={"pattern": ["fixed"]},
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if self.pattern == "fixed" and self.block and self.summary > self.block:
            raise ValueError(
                f"summary {self.summary} is more than a block has: use {self.block} or less"
            )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        if self.block:
            return replace(facts, complexity="L^2")
        return facts


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.sparse.core:Sparse",
    summary="Sparse Transformer: blocks or a window, and regularly placed tokens that are far",
    paper="Child, Gray, Radford, Sutskever 2019, Generating "
    "long sequences with sparse transformers",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L^1.5"),
    variants={
        "strided": {"pattern": "strided"},
        "fixed, blocks of 5": {"block": 5, "summary": 2},
        "strided by 4": {"pattern": "strided", "block": 4},
    },
)

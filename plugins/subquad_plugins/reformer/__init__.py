"""Reformer: attention among tokens that hash alike. Light half."""

from __future__ import annotations

from dataclasses import replace

from subquad.plugin import Facts, MixerConfig, MixerPlugin, param


class Config(MixerConfig):
    """Parameters of Reformer's attention."""

    num_hashes: int = param(2, meaning="rounds of hashing", ge=1, search=(1, 2, 4, 8))
    num_buckets: int = param(
        32,
        meaning="buckets of a round, an even number",
        ge=2,
        multiple_of=2,
        search=(8, 16, 32, 64),
    )
    chunk: int = param(
        64,
        meaning="tokens of a chunk; a token sees its own and the one before",
        ge=1,
        search=(16, 32, 64, 128),
    )
    as_published: bool = param(
        False,
        meaning="the first chunk of a round looks back at the "
        "last one of another round, as in published code",
    )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        if self.as_published:
            return replace(facts, causal="never", padding_invariant=False)
        return facts


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.reformer.mixer:Reformer",
    summary="Reformer: softmax attention in chunks of tokens sorted by hash, queries are keys",
    paper="Kitaev, Kaiser, Levskaya 2020, Reformer: the efficient transformer",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L"),
    variants={
        "short chunks": {"chunk": 4, "num_buckets": 4},
        "four rounds": {"num_hashes": 4, "chunk": 8},
        "as published": {"as_published": True, "chunk": 8},
    },
)

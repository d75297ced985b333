"""Gated DeltaNet: linear attention that replaces what it knew of a key, and forgets. Light half."""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin, param
from subquad_plugins.retnet import GatedHeadsConfig


class Config(GatedHeadsConfig):
    """Parameters of Gated DeltaNet."""

    key_width: float = param(
        0.75,
        meaning="width of keys over the model's width, rounded to whole channels of a head",
        ge=0.125,
        le=2,
        search=(0.5, 0.75, 1.0),
    )
    conv_kernel: int = param(
        4,
        meaning="tokens that the convolutions of queries, keys and values see",
        ge=2,
        le=64,
        search=(2, 3, 4),
    )
    decay: bool = param(
        True,
        meaning="forget at a rate that follows from the token; false: DeltaNet",
        search=(True, False),
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.gated_deltanet.mixer:GatedDeltaNet",
    summary="Gated DeltaNet: linear attention with the delta rule and a decay, by chunks",
    paper="Yang, Kautz and Hatamizadeh 2024, Gated Delta "
    "Networks: Improving Mamba2 with Delta Rule",
    facts=Facts(causal="always", padding_invariant=True, complexity="L"),
    variants={"deltanet": {"decay": False, "key_width": 1.0, "expand": 1}},
)

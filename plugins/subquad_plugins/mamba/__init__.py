"""Mamba: a state space model whose time step and projections follow from the token. Light half."""

from __future__ import annotations

from typing import Literal

from subquad.plugin import Facts, MixerPlugin, param
from subquad_plugins.s4d import TimeStepConfig


class Config(TimeStepConfig):
    """Parameters of Mamba."""

    state_dim: int = param(
        16,
        meaning="width of the state of each channel",
        symbol="N",
        ge=1,
        le=1024,
        search=(8, 16, 32),
    )
    expand: int = param(
        2, meaning="channels over the model's width", symbol="E", ge=1, le=8, search=(1, 2)
    )
    conv_kernel: int = param(
        4, meaning="tokens that the convolution before the scan sees", ge=2, le=64, search=(2, 3, 4)
    )
    dt_rank: int | None = param(
        None,
        meaning="rank of the projection to time steps; null: a sixteenth of dim",
        symbol="R",
        ge=1,
        le=4096,
    )
    discretization: Literal["euler", "zoh"] = param(
        "euler",
        meaning="how a token enters the state: dt B, as in the authors' code, or by a "
        "zero-order hold, as in the paper",
        search=("euler", "zoh"),
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.mamba.mixer:Mamba",
    summary="Mamba: a state space model selected by the tokens, as a scan",
    paper="Gu and Dao 2023, Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
    facts=Facts(causal="always", padding_invariant=True, complexity="L"),
    variants={"hold": {"discretization": "zoh", "state_dim": 3, "conv_kernel": 2}},
)

"""S5: one diagonal state space model for all channels together. Light half."""

from __future__ import annotations

from pydantic import model_validator

from subquad.plugin import Facts, MixerPlugin, param
from subquad_plugins.s4d import StateSpaceConfig


class Config(StateSpaceConfig):
    """Parameters of S5."""

    blocks: int = param(
        1,
        meaning="blocks of HiPPO states at the start",
        symbol="J",
        ge=1,
        le=256,
        search=(1, 2, 4, 8),
    )

    @model_validator(mode="after")
    def _blocks_hold_pairs(self) -> Config:
        if self.state_dim % (2 * self.blocks):
            raise ValueError(
                f"state_dim {self.state_dim} is not made of {self.blocks} blocks of pairs"
            )
        return self


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.s5.mixer:S5",
    summary="S5: a diagonal state space model of all channels together, as a scan",
    paper="Smith et al. 2023, Simplified State Space Layers for Sequence Modeling",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L"),
    variants={"past": {"bidirectional": False, "blocks": 4}},
)

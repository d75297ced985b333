"""S4: a long convolution whose kernel is that of a state space with HiPPO's matrix. Light half."""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin
from subquad_plugins.s4d import StateSpaceConfig


class Config(StateSpaceConfig):
    """Parameters of S4."""


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.s4.mixer:S4",
    summary="S4: a state space model with a diagonal plus low-rank matrix, as a long convolution",
    paper="Gu, Goel and Ré 2022, Efficiently Modeling Long Sequences with Structured State Spaces",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L log L", leak=1e-12),
    variants={"few": {"state_dim": 8}, "past": {"bidirectional": False, "state_dim": 6}},
)

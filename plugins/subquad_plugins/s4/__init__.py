"""S4: a long convolution whose kernel is that of a state space with HiPPO's matrix. Light half."""

from __future__ import annotations

from dataclasses import replace

from subquad.plugin import Facts, MixerPlugin
from subquad_plugins.s4d import StateSpaceConfig

FEW = 16
"""States up to which the FFT is most of the work. Beyond, it is products with the state's matrix, which grow like L."""


class Config(StateSpaceConfig):
    """Parameters of S4."""

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        return facts if self.state_dim <= FEW else replace(facts, complexity="L")


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.s4.mixer:S4",
    summary="S4: a state space model with a diagonal plus low-rank matrix, as a long convolution",
    paper="Gu, Goel and Ré 2022, Efficiently Modeling Long Sequences with Structured State Spaces",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L log L", leak=1e-12),
    variants={"few": {"state_dim": 8}, "past": {"bidirectional": False, "state_dim": 6}},
)

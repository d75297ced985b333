"""S4D: a long convolution whose kernel is a sum of damped oscillations. Light half."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Range, param


class TimeStepConfig(MixerConfig):
    """Time steps that are drawn at the start."""

    dt_min: float = param(
        1e-3,
        meaning="shortest time step drawn at the start",
        ge=1e-6,
        le=1,
        search=Range(1e-4, 1e-2, log=True),
    )
    dt_max: float = param(
        1e-1,
        meaning="longest time step drawn at the start",
        ge=1e-6,
        le=10,
        search=Range(1e-2, 1, log=True),
    )

    @model_validator(mode="after")
    def _steps_are_in_order(self) -> Self:
        if self.dt_min > self.dt_max:
            raise ValueError(f"dt_min {self.dt_min:g} is above dt_max {self.dt_max:g}")
        return self


class StateSpaceConfig(TimeStepConfig):
    """Parameters that linear state space models share."""

    state_dim: int = param(
        64,
        meaning="width of the state, an even number: pairs of conjugates",
        symbol="N",
        ge=2,
        le=4096,
        multiple_of=2,
        search=(16, 32, 64, 128),
    )
    bidirectional: bool = param(
        True,
        meaning="also from the future, with weights of its own, unless causal is asked "
        "for; false: always causal",
        search=(True, False),
    )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        if self.bidirectional:
            return facts
        return replace(facts, causal="always")


class Config(StateSpaceConfig):
    """Parameters of S4D."""

    start: Literal["lin", "inv"] = param(
        "lin", meaning="frequencies at the start: S4D-Lin or S4D-Inv", search=("lin", "inv")
    )
    discretization: Literal["zoh", "bilinear"] = param(
        "zoh", meaning="zero-order hold, or the bilinear transform", search=("zoh", "bilinear")
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.s4d.mixer:S4D",
    summary="S4D: a diagonal state space model, as a long convolution",
    paper="Gu et al. 2022, On the Parameterization and "
    "Initialization of Diagonal State Space Models",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L log L", leak=1e-12),
    variants={
        "bilinear": {"start": "inv", "discretization": "bilinear"},
        "past": {"bidirectional": False},
    },
)

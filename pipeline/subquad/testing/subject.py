"""What is certified: one mixer with one set of parameters, causal or not, built as often as the checks need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subquad.errors import ConfigError
from subquad.experiment import parameters
from subquad.nn import TokenMixer
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Resolved, make_mixer

DIM, HEADS, MAX_LEN = 16, 2, 64
STIR = 0.05
"""Noise added to all weights: at their starting values some methods do nothing (a filter of zeros, a gate shut)."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One way of building a mixer.

    Attributes:
        resolved: the plugin.
        config: its parameters.
        facts: what it claims with these.
        causal: whether it is built to see no later position.
        variant: "default", or the name of one of the plugin's variants.
    """

    resolved: Resolved
    config: Config
    facts: Facts
    causal: bool
    variant: str = "default"

    def __str__(self) -> str:
        return f"{self.variant}, causal" if self.causal else self.variant

    def build(
        self,
        *,
        dim: int = DIM,
        num_heads: int = HEADS,
        max_len: int = MAX_LEN,
        dtype: torch.dtype = torch.float64,
        stirred: bool = True,
        seed: int = 0,
        **site: Any,
    ) -> TokenMixer:
        """A new mixer in evaluation mode; the same arguments give the same weights.

        Args:
            stirred: add noise to the starting weights, see `STIR`.
            seed: of the weights.
            site: further attributes of the `Site`.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            place = Site(dim=dim, num_heads=num_heads, max_len=max_len, causal=self.causal, seed=seed, **site)
            mixer = make_mixer(self.resolved, self.config, place).to(dtype).eval()
            if stirred:
                with torch.no_grad():
                    for parameter in mixer.parameters():
                        parameter.add_(STIR * torch.randn_like(parameter))
        return mixer


def tokens(batch: int, length: int, dim: int = DIM, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    """Standard normal tokens, (B, L, D)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, dim, generator=generator, dtype=torch.float64).to(dtype)


def subjects(resolved: Resolved, params: Mapping[str, Any] | None = None) -> Iterator[Subject]:
    """Every way that is certified: the given parameters, or else the defaults and each variant; causal where it can be.

    Raises:
        ConfigError: the parameters are wrong.
    """
    plugin = resolved.plugin
    if not isinstance(plugin, MixerPlugin):
        raise ConfigError(f"{resolved.found} is no mixer")
    chosen = {"given": params} if params else {"default": {}, **plugin.variants}
    for name, values in chosen.items():
        config = parameters(resolved, dict(values))
        facts = plugin.facts_of(config)
        for causal in {"never": (False,), "optional": (False, True), "always": (True,)}[facts.causal]:
            yield Subject(resolved=resolved, config=config, facts=facts, causal=causal, variant=name)

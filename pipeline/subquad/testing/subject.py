"""What is certified: one mixer with one set of parameters, causal or not, built as often as the checks need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subquad.errors import ConfigError
from subquad.experiment import parameters
from subquad.nn import AttentionCore, TokenMixer
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Found, Resolved, build_class, make_mixer, resolve
from subquad.registry.contract import check_plugin
from subquad.registry.foreign import blamed

MAX_LEN = 64
"""Positions a mixer is built for where a check says nothing else."""

STIR = 0.05
"""Noise added to all weights: at their starting values some methods do nothing (a filter of zeros, a gate shut)."""


@dataclass(frozen=True, kw_only=True)
class CheckSubject:
    """One way of building a mixer.

    Attributes:
        resolved: the plugin.
        config: its parameters.
        facts: what it claims with these.
        causal: whether it is built to see no later position.
        variant: "default", the name of one of the plugin's variants, or "given" by the user.
        dim, num_heads: width and heads the checks build it with.
        compiler: backend of torch.compile that is compared with eager execution.
        device: where kernels are held against the reference.
    """

    resolved: Resolved
    config: Config
    facts: Facts
    causal: bool
    variant: str = "default"
    dim: int = 16
    num_heads: int = 2
    compiler: str = "aot_eager"
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.variant}, causal" if self.causal else self.variant

    @property
    def is_core(self) -> bool:
        """Whether it is an attention core, whose projections subquad owns."""
        return issubclass(build_class(self.resolved), AttentionCore)

    def at_most(self, length: int) -> int:
        """`length`, or the most positions the mixer takes with any `Site`, where that is less."""
        limit = self.facts.max_length
        return min(length, limit) if isinstance(limit, int) else length

    def build(
        self,
        *,
        max_len: int = MAX_LEN,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        num_layers: int = 2,
        **site: Any,
    ) -> TokenMixer:
        """A new mixer in evaluation mode, its weights stirred; the same arguments give the same weights.

        Args:
            seed: of the weights.
            num_layers: 1: a mixer of the last layer.
            site: further attributes of the `Site`.
        """
        place = Site(
            dim=self.dim,
            num_heads=self.num_heads,
            max_len=self.at_most(max_len),
            causal=self.causal,
            seed=seed,
            num_layers=num_layers,
            **site,
        )
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            mixer = make_mixer(self.resolved, self.config, place).to(dtype).eval()
            for parameter in mixer.parameters():
                parameter.add_(STIR * torch.randn_like(parameter))
        return mixer

    def tokens(self, batch: int, length: int, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
        """Standard normal tokens of the subject's width, (B, L, D)."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(batch, length, self.dim, generator=generator, dtype=torch.float64).to(dtype)


def check_subjects(
    resolved: Resolved, params: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[CheckSubject]:
    """Every way that is certified: the given parameters, or else the defaults and each variant; causal where it can be.

    Args:
        options: further attributes of the subjects: dim, num_heads, compiler, device.

    Raises:
        ConfigError: the parameters are wrong.
    """
    plugin = resolved.plugin
    if not isinstance(plugin, MixerPlugin):
        raise ConfigError(f"{resolved.found} is no mixer")
    chosen = {"given": params} if params else {"default": {}, **plugin.variants}
    for name, values in chosen.items():
        config = parameters(resolved, dict(values))
        with blamed(f"{resolved.found} cannot say what it claims"):
            facts = plugin.facts_of(config)
        for causal in {"never": (False,), "optional": (False, True), "always": (True,)}[facts.causal]:
            yield CheckSubject(resolved=resolved, config=config, facts=facts, causal=causal, variant=name, **options)


def resolve_mixer(target: str | type | MixerPlugin | Resolved) -> Resolved:
    """The plugin that is meant.

    Args:
        target: a plugin's name, `./file.py:Class`, a `TokenMixer` or `AttentionCore` class with `Config` and `facts`,
            or a `MixerPlugin`.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
    """
    if isinstance(target, Resolved):
        return target
    if isinstance(target, str):
        return resolve("mixer", target)
    build = target if isinstance(target, type) else target.build
    home, _, name = build.partition(":") if isinstance(build, str) else (build.__module__, "", build.__name__)
    found = Found("mixer", name, "", "not installed", f"{home}:{name}")
    return Resolved(check_plugin(found, target), found)

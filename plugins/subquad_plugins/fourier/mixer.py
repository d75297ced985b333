"""Fourier mixing as a token mixer: an optional projection, the transform, an optional projection.

The transform is computed in fp32 at least, also under autocast: FFTs of half precision overflow, or
do not exist.

Letters: B batch, L length, D width, N transform length, N_max longest sequence.
Reference: MDFWA, Eq. 2 and its learned frequencies; FNet, Eq. 3. Departure: a learned frequency is
kept as its distance from k, because fp32 cannot hold k + 1e-4 for k in the thousands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins.fourier import Config
from subquad_plugins.fourier.transform import fourier_mix, learned_fourier


class Fourier(TokenMixer):
    """Fourier mixing.

    Args:
        config: see `Config`.
        site: where it stands; learned frequencies need its `max_len`.

    Raises:
        PluginError: learned frequencies, and the longest sequence is not known.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        if config.projections == "both":
            self.value = nn.Linear(site.dim, site.dim)
        else:
            self.value = None
        if config.projections != "none":
            self.out = nn.Linear(site.dim, site.dim)
        else:
            self.out = None
        learned = config.frequencies == "learned"
        if learned and not site.max_len:
            raise PluginError(
                "fourier: learned frequencies need the length of the longest "
                "sequence, which is not known"
            )
        if learned:
            self.offset = nn.Parameter(torch.zeros(site.max_len))
        else:
            self.offset = None

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        if self.value is None:
            value = x
        else:
            value = self.value(x)
        with torch.autocast(x.device.type, enabled=False):
            mixed = self._mix(value, keep)
        if self.out is None:
            return mixed
        return self.out(mixed)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Frequencies are no weights: without decay, which would pull them back to whole
        numbers.
        """
        if self.offset is None:
            return {}
        return {"offset": ParameterRule(weight_decay=False)}

    def omega(self, length: int) -> Tensor:
        """Frequencies omega_k of the first outputs, in cycles over the N tokens; (length,) float64.

        Raises:
            PluginError: more than there are.
        """
        assert self.offset is not None
        if length > len(self.offset):
            raise PluginError(
                f"fourier: got {length} positions, and learned frequencies for {len(self.offset)}"
            )
        return torch.arange(length, device=self.offset.device) + self.offset[:length].double()

    def _mix(self, x: Tensor, keep: Tensor | None) -> Tensor:
        config = self.config
        if keep is not None and config.length == "padded":
            x = x.masked_fill(~keep[..., None], 0.0)
            keep = None
        if self.offset is None:
            return fourier_mix(x, config.form, config.norm, keep)
        return learned_fourier(
            x, self.omega(x.shape[1]), config.terms, config.form, config.norm, keep
        )

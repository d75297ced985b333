"""MDFWA as a token mixer: Y = sigma(X' F_F + X~ F_W + b), then LN(Y); a residual path around it
gives X + LN(Y).

X' is a Fourier mixing of X, X~ a wavelet mixing. Where causal both are one-sided: a running Fourier
sum of fixed period, undecimated wavelets. Both branches sum in fp32 at least, also under autocast,
whose format their tokens have.

Where one sequence sees another it is C = X' W_V, then LN(C): X' is the running Fourier sum over [E;
Q], E the other sequence, and of it the rows of Q. What E adds does not depend on Q: it is computed
once. Wavelets take no part.

Letters: B batch, L length, T targets at most, D model width, N period.
Reference: MDFWA, Sec. 3.2-3.4. Departures: X~, not X, meets F_W (Sec. 3.4 loses the tilde, Fig. 1
has it); the period of the causal branch is a constant; the causal wavelets, of which the paper says
nothing, are one-sided; in cross-mixing E comes first, as the paper's [Q; K] would hide the source
behind its own mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import Cache, ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins import causal_fourier, fourier
from subquad_plugins.causal_fourier.mixer import CausalFourier
from subquad_plugins.fourier.mixer import Fourier
from subquad_plugins.mdfwa import Config
from subquad_plugins.mdfwa.fusion import fuse
from subquad_plugins.numerics.dropout import Dropout
from subquad_plugins.numerics.places import places_of, take_tokens, to_front
from subquad_plugins.numerics.tensors import precast, wide
from subquad_plugins.wavelet.mixer import WaveletBranch


class MDFWA(TokenMixer):
    """Fourier and wavelet mixing side by side.

    Args:
        config: see `Config`.
        site: where it stands; the longest sequence is the causal Fourier branch's period unless the
            config has one, with the longest other sequence added at role "cross".

    Raises:
        PluginError: a setting needs the length of the longest sequence, and it is not known.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.causal = site.causal
        self.crossing = site.role == "cross"
        if config.is_bound:
            self.max_len = config.period or site.max_len
        else:
            self.max_len = 0
        self.context_len = site.context_len
        self._need_length(config)
        # Only what takes part is built, so that every parameter has a gradient (DDP).
        self.fourier = self.from_fourier = self.bands = None
        if config.branches != "wavelet":
            self.fourier = _fourier_branch(config, site)
        if config.branches != "fourier" and not self.crossing:
            self.bands = WaveletBranch(
                config, atrous=site.causal, include_approx=config.include_approx
            )
        if self.fourier is not None:
            self.from_fourier = nn.Linear(site.dim, site.dim, bias=False)
        if self.bands is None:
            self.project = None
            self.from_wavelet = None
        else:
            self.project = nn.Linear(site.dim, site.dim, bias=False)
            self.from_wavelet = nn.Linear(site.dim, site.dim, bias=False)
        if self.crossing:
            self.bias = None
        else:
            self.bias = nn.Parameter(torch.zeros(site.dim))
        if config.gate == "sigmoid":
            self.gate = nn.Linear(site.dim, site.dim)
        else:
            self.gate = None
        self.dropout = Dropout(config.dropout)
        if config.norm_output:
            self.norm = nn.LayerNorm(site.dim)
        else:
            self.norm = nn.Identity()

    def forward(
        self,
        x: Tensor,
        *,
        keep: Tensor | None = None,
        carry: Any = None,
        context: Tensor | None = None,
        context_keep: Tensor | None = None,
    ) -> Tensor:
        """As `TokenMixer.forward`; at role "cross" with `context` (B, Lk, D), the other
        sequence, and its mask.
        """
        self._refuse_beyond_length(x.shape[1])
        if context is None:
            memory = None
        else:
            memory = self.memory(context, keep=context_keep)
        x = precast(x)
        with torch.autocast(x.device.type, enabled=False):
            if self.fourier is None:
                spectral = None
            else:
                spectral = self._seeing(self.fourier(x, keep=keep), memory, keep)
            if self.bands is None:
                banded = None
            else:
                banded = self.bands(x, keep)
        return self._fuse(x, spectral, banded)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        if self.fourier is None:
            rules = {}
        else:
            rules = self.fourier.parameter_rules()
        return {f"fourier.{name}": rule for name, rule in rules.items()}

    @property
    def caches(self) -> bool:
        return self.causal or self.crossing

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> Cache:
        """What another sequence adds to each target's Fourier sum; its real tokens stand at the
        first places.
        """
        if not isinstance(self.fourier, CausalFourier) or not self.crossing:
            return super().memory(context, keep=keep)
        if context.shape[1] > self.context_len:
            raise PluginError(
                f"mdfwa: got {context.shape[1]} positions to "
                f"see, and it was built for {self.context_len}"
            )
        with torch.autocast(context.device.type, enabled=False):
            z = wide(context)
            return {
                "rows": self.fourier.source(
                    z if keep is None else to_front(z, keep, places_of(keep))
                )
            }

    def prefill(
        self, x: Tensor, *, keep: Tensor | None = None, memory: Cache = None
    ) -> tuple[Tensor, Cache]:
        """As `TokenMixer.prefill`; `memory` is that of another sequence, None for one sequence."""
        self._refuse_beyond_length(x.shape[1])
        if keep is None:
            lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            lengths = keep.sum(1)
        x = precast(x)
        spectral = banded = None
        cache: dict[str, Cache] = {}
        with torch.autocast(x.device.type, enabled=False):
            if self.fourier is not None:
                spectral, cache["fourier"] = self.fourier.prefill(wide(x), keep=keep)
                spectral = self._seeing(spectral, memory, keep)
            if self.bands is not None:
                banded = self.bands(wide(x), keep)
                cache["wavelet"] = self.bands.remember(wide(x), lengths)
        return self._fuse(x, spectral, banded), cache

    def step(self, x: Tensor, cache: Cache, *, memory: Cache = None) -> tuple[Tensor, Cache]:
        """As `TokenMixer.step`; `memory` is that of another sequence, None for one sequence."""
        x = precast(x)
        spectral = banded = None
        grown: dict[str, Cache] = {}
        with torch.autocast(x.device.type, enabled=False):
            if self.fourier is not None:
                spectral, grown["fourier"] = self.fourier.step(wide(x), cache["fourier"])
                if memory is not None:
                    spectral = (
                        spectral
                        + take_tokens(memory["rows"], cache["fourier"]["position"][:, None])[:, 0]
                    )
            if self.bands is not None:
                banded, grown["wavelet"] = self.bands.step(wide(x), cache["wavelet"])
        return self._fuse(x, spectral, banded), grown

    def _seeing(self, spectral: Tensor, memory: Cache, keep: Tensor | None) -> Tensor:
        """Sums (B, L, D) with what another sequence adds to them."""
        if not self.crossing:
            return spectral
        if memory is None:
            raise PluginError("mdfwa: built for a sequence that sees another, and there is none")
        rows = memory["rows"]
        return spectral + (
            rows[:, : spectral.shape[1]]
            if keep is None
            else take_tokens(rows, places_of(keep).rank)
        )

    def _fuse(self, x: Tensor, spectral: Tensor | None, banded: Tensor | None) -> Tensor:
        """LN(sigma(X' F_F + X~ F_W + b)), or with a gate G of X: G * X' F_F + (1 - G) * X~ F_W + b
        inside.

        Where it sees another sequence, LN(X' F_F), or LN(G * X' F_F).
        """
        parts = []
        if self.from_fourier is not None and spectral is not None:
            parts.append(self.from_fourier(spectral.to(x.dtype)))
        if self.project is not None and self.from_wavelet is not None and banded is not None:
            # Two products rather than one with F_W P: so both modules are called at any size, and
            # hooks on them.
            parts.append(self.from_wavelet(self.project(banded.to(x.dtype))))
        if self.bias is None:
            if self.gate is None:
                total = parts[0]
            else:
                total = torch.sigmoid(self.gate(x)) * parts[0]
            return self.norm(self.dropout(total))
        if len(parts) == 1:
            return self.norm(self.dropout(F.gelu(parts[0] + self.bias)))
        return self.norm(
            self.dropout(
                fuse(parts[0], parts[1], None if self.gate is None else self.gate(x), self.bias)
            )
        )

    def _need_length(self, config: Config) -> None:
        if self.crossing and not (self.max_len and self.context_len):
            raise PluginError(
                "mdfwa: role cross needs the lengths of both longest sequences, which are not known"
            )
        if (
            config.branches == "wavelet"
            or self.max_len
            or not (self.causal or config.frequencies == "learned")
        ):
            return
        if self.causal:
            raise PluginError(
                "mdfwa: set period, as the length of the longest sequence is not known"
            )
        raise PluginError(
            "mdfwa: the number of learned frequencies needs the length of the "
            "longest sequence, which is not known"
        )

    def _refuse_beyond_length(self, length: int) -> None:
        if self.max_len and length > self.max_len:
            raise PluginError(f"mdfwa: got {length} positions, and it was built for {self.max_len}")


def _fourier_branch(config: Config, site: Site) -> TokenMixer:
    """The Fourier mixing of tokens alone, without projections."""
    if site.causal or site.role == "cross":
        norm = "causal_rms" if config.norm == "auto" else config.norm
        chosen = causal_fourier.Config(
            period=config.period, norm=norm, frequencies=config.frequencies, terms=config.terms
        )
        return CausalFourier(chosen, site, first=site.context_len)
    norm = "ortho" if config.norm == "auto" else config.norm
    assert norm != "causal_rms"
    return Fourier(
        fourier.Config(
            form=config.form, norm=norm, frequencies=config.frequencies, terms=config.terms
        ),
        site,
    )

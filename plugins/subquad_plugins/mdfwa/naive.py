"""MDFWA by dense matrices and PyWavelets, with the paper's names: the oracle that the mixer is
tested against.

Letters: B batch, L length, D model width, J scales, N period.
Reference: Kiruluta et al., arXiv 2111.15473v2, Sec. 3.2-3.4; readings in
docs/reference/mixers/mdfwa.md.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad_plugins.causal_fourier import naive as causal_oracle
from subquad_plugins.fourier import naive as oracle
from subquad_plugins.wavelet.naive import wavelet_branch


def mdfwa(
    X: Tensor,
    *,
    b: Tensor,
    F_F: Tensor | None = None,
    F_W: Tensor | None = None,
    P: Tensor | None = None,
    alpha: Tensor | None = None,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    W_G: Tensor | None = None,
    b_G: Tensor | None = None,
    form: str = "re_seq",
    norm: str = "ortho",
    omega: Tensor | None = None,
    delta: Tensor | None = None,
    period: int | None = None,
    wavelet: str = "db4",
    mode: str = "periodization",
    include_approx: bool = False,
    keep: Tensor | None = None,
) -> Tensor:
    """LN(Y) with Y = sigma(X' F_F + X~ F_W + b); the layer is X + LN(Y).

    Args:
        X: (B, L, D) float64.
        b: (D,).
        F_F: (D, D), multiplied from the right; no Fourier branch where None.
        F_W: (D, D), multiplied from the right; no wavelet branch where None.
        P: (D, D): X~ = IDWT({alpha_j W^(j)}) P^T.
        alpha: (J,), or (J+1,) with the approximation's weight last.
        gain: (D,) of the layer norm; no norm where None.
        bias: (D,) of the layer norm.
        W_G: (D, D), multiplied from the right: the gate G = sigmoid(X W_G + b_G); no gate where
            None.
        b_G: (D,).
        form: of the Fourier branch where not causal.
        norm: of the Fourier branch.
        omega: (L,) learned frequencies where not causal.
        delta: (L,) learned distances of the frequencies from 0, 1, .. where causal.
        period: N; makes both branches causal.
        wavelet: PyWavelets' name.
        mode: PyWavelets' name of the extension.
        include_approx: whether alpha has a weight for the approximation.
        keep: (B, L) bool, True = real token.

    Returns:
        (B, L, D), meaningless at padding.
    """
    share, other = _shares(X, W_G, b_G)
    total = b.expand_as(X)
    if F_F is not None:
        total = total + share * (_fourier(X, form, norm, omega, delta, period, keep) @ F_F)
    if F_W is not None:
        assert alpha is not None
        assert P is not None
        banded = wavelet_branch(
            X, alpha, P, wavelet=wavelet, mode=mode, atrous=period is not None,
            include_approx=include_approx, keep=keep,
        )  # fmt: skip
        total = total + other * (banded @ F_W)
    return _normed(F.gelu(total), gain, bias)


def cross_mixing(
    Q: Tensor,
    E: Tensor,
    *,
    W_V: Tensor,
    N_s: int,
    N_t: int,
    norm: str = "causal_rms",
    delta: Tensor | None = None,
    W_q: Tensor | None = None,
    b_q: Tensor | None = None,
    gain: Tensor | None = None,
    bias: Tensor | None = None,
    keep: Tensor | None = None,
    source_keep: Tensor | None = None,
) -> Tensor:
    """LN(C) with C = M^ W_V, M^ the rows of Q in the causal Fourier sum over M = [E; Q]; a layer is
    Q + LN(C).

    E stands at the first N_s places, with zeros where it is shorter, and Q behind it, so that N =
    N_s + N_t is fixed.

    Args:
        Q: (B, L, D) float64, the targets.
        E: (B, S, D), the encoded source.
        W_V: (D, D), multiplied from the right.
        N_s: longest source.
        N_t: most targets.
        norm: of the Fourier sum.
        delta: (N_t,) learned distances of the targets' frequencies from their places.
        W_q: (D, D), multiplied from the right: C is multiplied by sigmoid(Q W_q + b_q); no gate
            where None.
        b_q: (D,).
        gain: (D,) of the layer norm; no norm where None.
        bias: (D,) of the layer norm.
        keep: (B, L) bool, True = real target.
        source_keep: (B, S) bool, True = real source token.

    Returns:
        (B, L, D), meaningless at padding.
    """
    out = torch.zeros_like(Q)
    distance = None
    if delta is not None:
        distance = torch.cat([delta.new_zeros(N_s), delta])
    for i, (targets, sources) in enumerate(zip(Q, E, strict=True)):
        if keep is None:
            real = torch.ones(len(targets), dtype=torch.bool)
        else:
            real = keep[i]
        M = Q.new_zeros(N_s + N_t, Q.shape[2])
        if source_keep is not None:
            sources = sources[source_keep[i]]
        M = torch.cat([sources, M[: N_s - len(sources)], targets[real], M[: N_t - int(real.sum())]])
        rows = causal_oracle.causal_fourier(M[None], N_s + N_t, norm, distance)[0, N_s:]
        out[i, real] = rows[: int(real.sum())]
    C = out @ W_V
    if W_q is not None and b_q is not None:
        C = torch.sigmoid(Q @ W_q + b_q) * C
    return _normed(C, gain, bias)


def _shares(X: Tensor, W_G: Tensor | None, b_G: Tensor | None) -> tuple[Tensor, Tensor]:
    """What the Fourier and the wavelet branch are multiplied by: G and 1 - G, or 1 and 1."""
    if W_G is None or b_G is None:
        return torch.ones_like(X), torch.ones_like(X)
    share = torch.sigmoid(X @ W_G + b_G)
    return share, 1 - share


def _normed(Y: Tensor, gain: Tensor | None, bias: Tensor | None) -> Tensor:
    if gain is None:
        return Y
    return F.layer_norm(Y, Y.shape[-1:], gain, bias)


def _fourier(
    X: Tensor,
    form: str,
    norm: str,
    omega: Tensor | None,
    delta: Tensor | None,
    period: int | None,
    keep: Tensor | None,
) -> Tensor:
    if period is None:
        return oracle.fourier(X, form, norm, omega, keep)
    out = torch.zeros_like(X)
    for i, sample in enumerate(X):
        if keep is None:
            real = torch.ones(len(sample), dtype=torch.bool)
        else:
            real = keep[i]
        if real.any():
            if delta is None:
                distance = None
            else:
                distance = delta[: int(real.sum())]
            rows = causal_oracle.causal_fourier(sample[real][None], period, norm, distance)
            out[i, real] = rows[0]
    return out

"""Every mixer with a `naive.py` against it: outputs, extra losses and all gradients, with every
setting, at odd lengths, with padding anywhere.

What is special of a mixer stands in its own file; what the certificate proves is not tried again.
Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tensors import assert_close, drawn, moved, padded_everywhere
from torch import Tensor

import subquad_plugins.agf.naive as agf
import subquad_plugins.causal_fourier.naive as causal_fourier
import subquad_plugins.fourier.naive as fourier
import subquad_plugins.mdfwa.naive as mdfwa
import subquad_plugins.mega.naive as mega
import subquad_plugins.sfpc.naive as sfpc
import subquad_plugins.wavelet.naive as wavelet
from subquad.nn import as_output
from subquad.plugin import MixerPlugin, Site
from subquad.registry import build_class, resolve
from subquad_plugins.causal_fourier import PLUGIN as CAUSAL_FOURIER
from subquad_plugins.fourier import PLUGIN as FOURIER
from subquad_plugins.sfpc import PLUGIN as SFPC
from subquad_plugins.wavelet import PLUGIN as WAVELET

DIM, HEADS = 12, 3
Params = Mapping[str, Any]
Result = tuple[Tensor, dict[str, Tensor]]
"""The output, and the extra losses."""
Defined = Callable[[Any, Any, Tensor, Tensor | None], Result]
"""Mixer, its config, x (B, L, D) and keep (B, L) to what it shall give."""


@dataclass(frozen=True)
class Oracle:
    """What a mixer is compared with.

    Attributes:
        define: what the mixer computes, by `naive.py`.
        settings: each as it is where it is not causal.
        causal: each where it is.
        tolerance: of what is compared, absolute and relative.
        of_gradients: the same for gradients.
        max_len: of the longest sequence.
        lengths: of the sequences.
        gaps: whether padding may stand between real tokens.
    """

    define: Defined
    settings: Sequence[Params] = ()
    causal: Sequence[Params] = ()
    tolerance: float = 1e-12
    of_gradients: float = 1e-11
    max_len: int = 32
    lengths: Sequence[int] = (1, 2, 13, 32)
    gaps: bool = True


def _agf(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    out, loss = agf.agf(x, dict(mixer.named_parameters()), config, HEADS, keep)
    return out, {"ortho": loss}


def _fourier(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    value = x if mixer.value is None else mixer.value(x)
    omega = None if mixer.offset is None else mixer.omega(x.shape[1])
    mixed = fourier.fourier(value, config.form, config.norm, omega, keep, config.length)
    return (mixed if mixer.out is None else mixer.out(mixed)), {}


def _causal_fourier(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    value = x if mixer.value is None else mixer.value(x)
    keep = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
    mixed = torch.zeros_like(x)
    for sample, real in enumerate(keep):
        delta = None if mixer.offset is None else mixer.delta()[: int(real.sum())]
        tokens = value[sample : sample + 1, real]
        rows = causal_fourier.causal_fourier(tokens, mixer.turn, config.norm, delta)
        mixed[sample, real] = rows[0]
    return (mixed if mixer.out is None else mixer.out(mixed)), {}


def _sfpc(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    return sfpc.mixer(x, dict(mixer.named_parameters()), config, keep), {}


def _mega(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    weights = dict(mixer.named_parameters())
    return mega.mega(x, weights, config, causal=mixer.causal, keep=keep), {}


def _wavelet(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    bands = mixer.bands
    given: dict[str, Any] = {"mode": bands.mode, "atrous": bands.atrous}
    given |= {"wavelet": bands.bank.name, "include_approx": bands.include_approx, "keep": keep}
    return wavelet.wavelet_branch(x, bands.weights(x), mixer.project.weight, **given), {}


def _mdfwa(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    causal = mixer.causal
    norm = ("causal_rms" if causal else "ortho") if config.norm == "auto" else config.norm
    given: dict[str, Any] = {
        "b": mixer.bias,
        "form": config.form,
        "mode": config.mode,
        "keep": keep,
    }
    given |= {"norm": norm, "period": (config.period or 32) if causal else None}
    if mixer.fourier is not None:
        given["F_F"] = mixer.from_fourier.weight.T
        if config.frequencies == "learned" and causal:
            given["delta"] = mixer.fourier.delta()
        elif config.frequencies == "learned":
            given["omega"] = mixer.fourier.omega(x.shape[1])
    if mixer.bands is not None:
        given |= {"F_W": mixer.from_wavelet.weight.T, "P": mixer.project.weight}
        given |= {"alpha": mixer.bands.weights(x), "wavelet": mixer.bands.bank.name}
        given["include_approx"] = config.include_approx
    if config.norm_output:
        given |= {"gain": mixer.norm.weight, "bias": mixer.norm.bias}
    if mixer.gate is not None:
        given |= {"W_G": mixer.gate.weight.T, "b_G": mixer.gate.bias}
    return mdfwa.mdfwa(x, **given), {}


def interpolated(terms: int) -> float:
    """What interpolation between whole frequencies may miss of 32 tokens: 2 (pi / 4)^P / P! of
    each.
    """
    return 1e-12 + 32 * 2 * (math.pi / 4) ** terms / math.factorial(terms)


EXACT = {"frequencies": "learned", "terms": 22}
"""Enough interpolation terms that learned frequencies are exact."""
TERMS = {"frequencies": "learned", "evaluation": "chirp", "terms": 12}
CHIRPED = {**TERMS, "projections": "both", "terms": 8}

MEGA: list[Params] = [
    {"ema_dim": 3},
    {"ema_dim": 3, "attention": "laplace", "norm": "layer"},
    {"ema_dim": 3, "chunk_size": 4, "norm": "scale"},
    {"ema_dim": 3, "attention": "laplace", "chunk_size": 3, "truncation": 2},
    {"bias": "rotary", "norm": "rms", "attention_dim": 6, "value_dim": 5, "ema_dim": 1},
    {"ema_dim": 3, "attention": "laplace", "bias": "rotary", "chunk_size": 50},
    {"max_positions": 32, "ema_dim": 4},
]

ORACLES = {
    "agf": Oracle(
        _agf,
        [
            {},
            {"order": 1, "jacobi_a": 2.0, "jacobi_b": -1.0},
            {"order": 12, "basis": "chebyshev", "coeff_activation": "none"},
            {"order": 5, "basis": "legendre", "sigma_map": "symmetric", "fix_identity": False},
            {"basis": "monomial", "ortho_norm": "frobenius"},
            {"order": 0},
            {"order": 0, "fix_identity": False},
            {"order": 0, "fix_identity": False, "coeff_activation": "none"},
            {"vector_activation": "none"},
            {"vector_activation": "sigmoid", "mask_padding": False},
            {"vector_activation": "tanh", "ortho_norm": "frobenius"},
            {"form": "uv"},
            {"form": "svd_scalar"},
        ],
        lengths=(1, 2, 7, 13),
    ),
    "causal_fourier": Oracle(
        _causal_fourier,
        causal=[params for params in ({}, *CAUSAL_FOURIER.variants.values()) if params != TERMS],
    ),
    "causal_fourier, 12 terms": Oracle(
        _causal_fourier, causal=[TERMS], tolerance=interpolated(12), of_gradients=1e-9
    ),
    "causal_fourier, 8 terms": Oracle(
        _causal_fourier, causal=[CHIRPED], tolerance=interpolated(8), of_gradients=1e-4
    ),
    "fourier": Oracle(
        _fourier,
        [
            params
            for params in ({}, *FOURIER.variants.values())
            if params.get("frequencies") != "learned"
        ],
    ),
    "fourier, learned": Oracle(
        _fourier,
        [params for params in FOURIER.variants.values() if params.get("frequencies") == "learned"],
        tolerance=interpolated(8),
        of_gradients=1e-4,
    ),
    "fourier, 14 terms": Oracle(
        _fourier,
        [{"form": "hartley", "frequencies": "learned", "terms": 14}],
        tolerance=interpolated(14),
        of_gradients=1e-10,
    ),
    "mdfwa": Oracle(
        _mdfwa,
        [
            {},
            {"form": "hartley", "include_approx": True},
            {"form": "re_2d", "wavelet": "bior2.2", "mode": "symmetric", "level": 2},
            {**EXACT, "norm": "paper"},
            {**EXACT, "form": "hartley", "gate": "sigmoid"},
            {"gate": "sigmoid", "wavelet": "haar", "level": 3},
            {"norm": "paper", "scale_weights": "fixed"},
            {"branches": "fourier"},
            {"branches": "wavelet", "norm_output": False},
        ],
        [
            {},
            {"wavelet": "db4", "level": 3, "include_approx": True, "norm": "paper"},
            {**EXACT, "norm": "ortho"},
            {"period": 50, "norm": "causal_rms", "gate": "sigmoid"},
            {"scale_weights": "fixed", "norm_output": False},
            {"branches": "fourier", "norm": "ortho"},
            {"branches": "wavelet"},
            {"scale_weights": "fixed", "include_approx": True},
        ],
        tolerance=1e-10,
        of_gradients=1e-10,
    ),
    "mega": Oracle(_mega, MEGA, MEGA, lengths=(1, 2, 11), gaps=False),
    "sfpc": Oracle(
        _sfpc,
        [
            *(
                params
                for params in ({}, *SFPC.variants.values())
                if params.get("operator") != "shift"
            ),
            {"projections": False, "coefficients": "shared"},
            {"order": 140},
            {"basis": "monomial_rescaled", "gate": "sigmoid"},
            {
                "operator": "circulant",
                "first_column": (0.5, 0.25, -0.25, 0.1, 0.0, 0.0, 0.3),
                "order": 2,
            },
            {"operator": "circulant", "evaluation": "reference", "order": 3},
        ],
        [
            *(params for params in SFPC.variants.values() if params.get("operator") == "shift"),
            {"operator": "shift", "coefficients": "head", "order": 20},
        ],
        max_len=7,
        lengths=(1, 2, 7),
    ),
    "wavelet": Oracle(
        _wavelet,
        [
            {},
            *WAVELET.variants.values(),
            {"mode": "antireflect", "wavelet": "db2", "level": 2},
            {"mode": "zero", "include_approx": False},
        ],
        [
            {},
            {"wavelet": "db4", "level": 3, "include_approx": False},
            {"wavelet": "sym4", "level": 2, "include_approx": False, "scale_weights": "fixed"},
            {"scale_weights": "fixed", "wavelet": "db2"},
        ],
        tolerance=1e-11,
    ),
}


def cases() -> Iterator[Any]:
    for name, oracle in ORACLES.items():
        for params, causal in (
            *((params, False) for params in oracle.settings),
            *((params, True) for params in oracle.causal),
        ):
            label = f"{name}{', causal' * causal}: {params}"
            yield pytest.param(name, params, causal, id=label)


def build(name: str, params: Params, causal: bool, **site: Any) -> tuple[Any, Any]:
    """A mixer none of whose parameters is at its start, and its config."""
    resolved = resolve("mixer", f"subquad:{name.split(',')[0]}")
    plugin = resolved.plugin
    assert isinstance(plugin, MixerPlugin)
    place = Site(dim=DIM, num_heads=HEADS, causal=causal, **site)
    config: Any = plugin.config(**params)
    config.check(place)
    torch.manual_seed(1)
    return moved(build_class(resolved)(config, place), 0.1), config


def results(
    out: Tensor, losses: dict[str, Tensor], keep: Tensor | None, inputs: Sequence[Tensor]
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Outputs at real tokens and the losses; and the gradients of both."""
    out = out if keep is None else out.masked_fill(~keep[..., None], 0.0)
    total = (out * drawn(*out.shape, seed=9)).sum()
    for loss in losses.values():
        total = total + (loss * (2 + torch.arange(len(loss)))).sum()
    return [out, *losses.values()], torch.autograd.grad(total, inputs)


@pytest.mark.parametrize(("name", "params", "causal"), list(cases()))
def test_a_mixer_equals_its_oracle_with_all_gradients(name, params, causal):
    oracle = ORACLES[name]
    mixer, config = build(name, params, causal, max_len=oracle.max_len)
    for length in oracle.lengths:
        padding = padded_everywhere(length)
        padding[2] |= not oracle.gaps
        for keep in (None, padding):
            x = drawn(4, length, DIM).requires_grad_()
            inputs = (x, *mixer.parameters())
            made = as_output(mixer(x, keep=keep))
            got, grads = results(made.out, dict(made.losses), keep, inputs)
            expected, wanted = results(*oracle.define(mixer, config, x, keep), keep, inputs)
            for tolerance, pairs in (
                (oracle.tolerance, zip(got, expected, strict=True)),
                (oracle.of_gradients, zip(grads, wanted, strict=True)),
            ):
                assert_close(*zip(*pairs, strict=True), tolerance)

"""What stands around an FFT over tokens, in Triton: the multiplications by a chirp, with the next
length, the real part and the FFT's order at once; and pairs of channels as complex numbers, folded.

Bytes of a chirp, with N = B L C numbers of which those of s bytes are complex, M the FFT's length:
into it N s read (half of that where real) and N s M / L written; out of it N s read and N s, real N
s / 2, written. The gradient has the same, in turn. Pairs, with N = B L C real numbers: before the
FFT 2 N loaded, of which memory moves N, and N fp32 numbers written; behind it N loaded and written.
An FFT finds its numbers side by side: tiles are turned on the way, which torch does by a copy
before each FFT.

Letters: B batch, L length, C channels, M rows of the result.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from subquad_plugins.numerics.launching import launch

TOKENS = 32
CHANNELS = 32
"""Of a tile."""


class Chirped(torch.autograd.Function):
    """See `chirp.chirped`; float32 or complex64, any strides. Linear: its gradient is itself,
    with the conjugate.
    """

    @staticmethod
    def forward(z: Tensor, wave: Tensor, size: int, real: bool) -> Tensor:
        # What is negated or conjugated only when read becomes numbers, which may lie in another
        # order.
        z = z.resolve_neg().resolve_conj()
        wave = wave.resolve_conj()
        batch, length, dim = z.shape
        if real or size <= length:
            out = torch.empty(
                batch, size, dim, dtype=torch.float32 if real else wave.dtype, device=z.device
            )
        else:
            out = torch.empty(batch, dim, size, dtype=wave.dtype, device=z.device).mT
        tiles = triton.cdiv(size, TOKENS)
        launch(
            chirp_kernel, (batch * tiles, triton.cdiv(dim, CHANNELS)),
            _words(z), _words(wave), _words(out), min(length, size), size, dim, tiles,
            *z.stride(), wave.stride(0) if wave.ndim == 2 else 0, wave.stride(-1), *out.stride(),
            FROM_REAL=not z.is_complex(), TO_REAL=real, TOKENS=TOKENS, CHANNELS=CHANNELS,
        )  # fmt: skip
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, wave, _, _ = inputs
        ctx.save_for_backward(wave)
        ctx.length = z.shape[1]
        ctx.real = not z.is_complex()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (wave,) = ctx.saved_tensors
        return Chirped.apply(grads[0], wave.conj(), ctx.length, ctx.real), None, None, None


def mixed(x: Tensor, form: str, norm: str, _keep: None) -> Tensor:
    """See `transform.fourier_mix`; float32, bfloat16 or float16, D even, not `re_2d`.

    With pairs of channels as complex numbers z, the transform's symmetric half of a row, h z_n +
    conj(h) z_-n, has a transform whose parts are those of the channels: h = 1 / 2 for the real
    part, (1 + i) / 2 for `hartley`.
    """
    x = x.contiguous()
    batch, length, dim = x.shape
    spectrum = torch.empty(batch, dim // 2, length, dtype=torch.complex64, device=x.device)
    y = torch.empty_like(x)
    tiles = triton.cdiv(length, TOKENS)
    grid = batch * tiles, triton.cdiv(dim // 2, CHANNELS)
    scale = length**-0.5 if norm == "ortho" else 1.0
    tile = {"HARTLEY": form == "hartley", "TOKENS": TOKENS, "CHANNELS": CHANNELS}
    launch(
        pairs_kernel, grid, x, _words(spectrum), scale, length, dim, tiles, FOLDS=True, **tile
    )
    spectrum = torch.fft.fft(spectrum, dim=2)
    launch(pairs_kernel, grid, y, _words(spectrum), 1.0, length, dim, tiles, FOLDS=False, **tile)
    return y


def _words(x: Tensor) -> Tensor:
    """Each complex number as one word of 8 bytes, the real part in the lower half: its
    neighbours stay side by side.
    """
    return x.view(torch.int64) if x.is_complex() else x


@triton.jit
def _parts(words):
    """Real and imaginary parts."""
    lower = words.to(tl.int32)
    upper = (words >> 32).to(tl.int32)
    return lower.to(tl.float32, bitcast=True), upper.to(tl.float32, bitcast=True)


@triton.jit
def _word(real, imaginary):
    upper = imaginary.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return upper | real.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def pairs_kernel(
    x, words, scale, length, dim, tiles,
    FOLDS: tl.constexpr, HARTLEY: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """One tile of tokens of one sample and pairs of channels: x folded to words (B, D / 2, L), or
    words to x.
    """
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    token = (tl.program_id(0) % tiles) * TOKENS + tl.arange(0, TOKENS)
    pair = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    channel = tl.program_id(1) * 2 * CHANNELS + tl.arange(0, 2 * CHANNELS)
    x += sample * length * dim + channel[None, :]
    here = x + token[:, None].to(tl.int64) * dim
    place = words + (sample * (dim // 2) + pair[None, :]) * length + token[:, None]
    inside = (token[:, None] < length) & (channel[None, :] < dim)
    whole = (token[:, None] < length) & (pair[None, :] < dim // 2)
    if FOLDS:
        there = x + ((length - token[:, None]) % length).to(tl.int64) * dim
        value = tl.load(here, mask=inside, other=0.0).to(tl.float32)
        turned = tl.load(there, mask=inside, other=0.0).to(tl.float32)
        real, imaginary = tl.split((value + turned).reshape(TOKENS, CHANNELS, 2))
        if HARTLEY:
            first, second = tl.split((value - turned).reshape(TOKENS, CHANNELS, 2))
            real -= second
            imaginary += first
        tl.store(place, _word(real * (0.5 * scale), imaginary * (0.5 * scale)), mask=whole)
    else:
        real, imaginary = _parts(tl.load(place, mask=whole, other=0))
        value = tl.join(real, imaginary).reshape(TOKENS, 2 * CHANNELS)
        tl.store(here, value.to(x.dtype.element_ty), mask=inside)


@triton.jit
def chirp_kernel(
    z, wave, out, length, size, dim, tiles,
    z_sample, z_token, z_channel, wave_sample, wave_token, out_sample, out_token, out_channel,
    FROM_REAL: tl.constexpr, TO_REAL: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """One tile of rows and channels of one sample; rows from `length` on are zero."""
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    token = ((tl.program_id(0) % tiles) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    exists = channel[None, :] < dim
    inside = (token[:, None] < length) & exists
    words = tl.load(wave + sample * wave_sample + token * wave_token, mask=token < length, other=0)
    cosine, sine = _parts(words)
    place = z + sample * z_sample + token[:, None] * z_token + channel[None, :] * z_channel
    if FROM_REAL:
        value = tl.load(place, mask=inside, other=0.0)
        real = value * cosine[:, None]
        imaginary = value * sine[:, None]
    else:
        first, second = _parts(tl.load(place, mask=inside, other=0))
        real = first * cosine[:, None] - second * sine[:, None]
        imaginary = first * sine[:, None] + second * cosine[:, None]
    place = out + sample * out_sample + token[:, None] * out_token + channel[None, :] * out_channel
    mask = (token[:, None] < size) & exists
    if TO_REAL:
        tl.store(place, real, mask=mask)
    else:
        tl.store(place, _word(real, imaginary), mask=mask)

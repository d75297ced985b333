"""The multiplications by a chirp around an FFT, in Triton: the next length, the real part and the
FFT's order at once.

Bytes per call, with N = B L C numbers of which those of s bytes are complex, M the FFT's length:
into it N s read (half of that where real) and N s M / L written; out of it N s read and N s, real N
s / 2, written. The gradient has the same, in turn. An FFT finds its numbers side by side: tiles are
turned on the way, which torch does by a copy before each FFT.

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
        upper = imaginary.to(tl.int32, bitcast=True).to(tl.int64) << 32
        tl.store(place, upper | real.to(tl.uint32, bitcast=True).to(tl.int64), mask=mask)

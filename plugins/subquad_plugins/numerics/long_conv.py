"""Long convolution along the sequence by zero-padded FFTs, in time O(L log L) per channel.

causal:        y_t = sum_{j >= 0} f_j x_{t-j}
bidirectional: y_t = sum_{j >= 0} f_j x_{t-j} + sum_{j >= 0} b_j x_{t+j+s},  s = 0 or 1

Everything is computed in fp32 at least (fp64 stays fp64), also under autocast: half-precision FFTs
exist for few lengths and on few devices only. Operation "long_conv": "real-backward" has a backward
pass of its own, which compilers do not need.

Letters: B batch, L length, D channels, K kernel length, N FFT length.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.lengths import fast_length
from subquad_plugins.numerics.tensors import channel_pieces, swapped


def causal_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """y_t = sum_j kernel_j x_{t-j}, with zeros before the start.

    Args:
        x: (B, L, D).
        kernel: (D, K), or (1, K) for all channels alike; what lies beyond lag L - 1 has no effect.

    Returns:
        (B, L, D) in float32, or float64 where either input is. Later positions leak into earlier
        ones by rounding errors of the FFT only: about 1e-15 of the largest output in float64, 1e-7
        in float32.
    """
    with torch.autocast(x.device.type, enabled=False):
        x, kernel = _wide(x, kernel)
        length = x.shape[1]
        kernel = kernel[:, :length]
        return _CIRCULAR(x, _placed(kernel, None, 0, fast_length(length + kernel.shape[1] - 1)))


def bidirectional_conv(
    x: Tensor, forward: Tensor, backward: Tensor, *, first_backward_lag: Literal[0, 1]
) -> Tensor:
    """y_t = sum_j forward_j x_{t-j} + sum_j backward_j x_{t+j+s}, with zeros on both sides and s =
    first_backward_lag.

    Published methods differ in s: Mega's two moving averages both hold the token itself (0: lag 0
    gets forward_0 + backward_0); in Monarch Mixer the backward kernel starts at the next token (1).

    Args:
        x: (B, L, D).
        forward: (D, K) or (1, K), from the past and the token itself.
        backward: (D, K') or (1, K'), from the future.
        first_backward_lag: the distance that backward_0 acts at.

    Returns:
        (B, L, D) in float32, or float64 where an input is.
    """
    with torch.autocast(x.device.type, enabled=False):
        x, forward = _wide(x, forward)
        _, backward = _wide(x, backward)
        length = x.shape[1]
        forward = forward[:, :length]
        backward = backward[:, : length - first_backward_lag]
        reach = max(forward.shape[1], backward.shape[1] + first_backward_lag)
        return _CIRCULAR(
            x, _placed(forward, backward, first_backward_lag, fast_length(length + reach - 1))
        )


def _wide(x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one dtype, float32 at least; a kernel for each channel."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, kernel.dtype), torch.float32)
    return x.to(dtype), kernel.to(dtype).expand(x.shape[2], -1)


def _placed(forward: Tensor, backward: Tensor | None, first: int, size: int) -> Tensor:
    """The kernel on a circle of `size` places, (D, N): lag j at place j, lag -j at place N - j.

    With N >= L + K - 1 no lag between -(L - 1) and L - 1 meets a tap that was meant for another
    one.
    """
    if backward is None:
        return F.pad(forward, (0, size - forward.shape[1]))
    if first == 0:
        forward = forward + F.pad(backward[:, :1], (0, forward.shape[1] - 1))
        backward = backward[:, 1:]
    between = forward.new_zeros(forward.shape[0], size - forward.shape[1] - backward.shape[1])
    return torch.cat([forward, between, backward.flip(1)], 1)


def _reference(x: Tensor, placed: Tensor) -> Tensor:
    """Circular convolution of (B, L, D), zero-padded, with (D, N), cut to the first L places."""
    size = placed.shape[1]
    spectrum = torch.fft.rfft(x.transpose(1, 2), n=size) * torch.fft.rfft(placed)
    return torch.fft.irfft(spectrum, n=size)[..., : x.shape[1]].transpose(1, 2)


_CIRCULAR = Operation("long_conv", reference=_reference)


@_CIRCULAR.implementation("real-backward", when=lambda *_: not torch.compiler.is_compiling())
def _real_backward(x: Tensor, placed: Tensor) -> Tensor:
    return _CircularConv.apply(x, placed)  # pyright: ignore[reportReturnType]


class _CircularConv(torch.autograd.Function):
    """The reference with a backward pass of real FFTs; autograd's own for `rfft` is a complex one,
    twice the work.

    It keeps the spectrum of x, which is twice as large but saves one of three transforms. Where
    channels do not come first in memory, they are moved there by quick copies, and back: the FFTs
    would do it slowly, and so would all that reads an output which was not moved back. A few
    channels at a time, so that their padded rows and spectra stay in a cache.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, placed: Tensor) -> Tensor:
        response = torch.fft.rfft(placed)
        ctx.size = placed.shape[1]
        ctx.rows_first = x.mT.is_contiguous()
        rows = swapped(x)
        spectra = []
        out = torch.empty_like(rows)
        for part in channel_pieces(rows):
            spectra.append(torch.fft.rfft(rows[:, part], n=ctx.size))
            out[:, part] = torch.fft.irfft(spectra[-1] * response[part], n=ctx.size)[
                ..., : x.shape[1]
            ]
        ctx.save_for_backward(response, *(spectra if ctx.needs_input_grad[1] else ()))
        if ctx.rows_first:
            return out.mT
        return swapped(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        response, *spectra = ctx.saved_tensors
        with torch.autocast(grads[0].device.type, enabled=False):
            grad = swapped(grads[0])
            if ctx.needs_input_grad[0]:
                to_x = torch.empty_like(grad)
            else:
                to_x = None
            if spectra:
                to_placed = grad.new_empty(response.shape[0], ctx.size)
            else:
                to_placed = None
            for i, part in enumerate(channel_pieces(grad)):
                spectrum = torch.fft.rfft(grad[:, part], n=ctx.size)
                if to_placed is not None:
                    # Conjugated first: `conj` only marks a tensor, and the product would copy it.
                    products = spectra[i].conj_physical().mul_(spectrum).sum(0)
                    to_placed[part] = torch.fft.irfft(products, n=ctx.size)
                if to_x is not None:
                    spectrum.mul_(response[part].conj_physical())
                    to_x[:, part] = torch.fft.irfft(spectrum, n=ctx.size)[..., : grad.shape[2]]
            if to_x is not None:
                if ctx.rows_first:
                    to_x = to_x.mT
                else:
                    to_x = swapped(to_x)
            return to_x, to_placed

"""The selective scan, h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t and y_t = C_t h_t, in time and
memory linear in L.

Operation "mamba.scan": the reference makes all states, (B, L, E, N), at once; "pieces" takes them
piece by piece, so that they stay in the caches, and makes them again in the backward pass from
those at the start of each piece; "triton" does so in registers.

Letters: B batch, L length, E channels, N state width, T tokens of a piece.
Reference: Gu and Dao 2023, Mamba, Eq. 2 and Section 3.3.2, whose kernel also makes the states
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.launching import FORMATS, kernels_run
from subquad_plugins.numerics.scan import scan
from subquad_plugins.numerics.tensors import wide

PIECE = 1 << 18
"""Numbers of the states of a piece: as many as caches hold."""

TOKENS = 64
"""Of a piece at least, on a GPU."""

WIDEST = 32
"""State width that the kernel's registers hold."""


def selective_scan(
    u: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    before: Tensor | None = None,
    *,
    zoh: bool = False,
    bias: Tensor | None = None,
    skip: Tensor | None = None,
    gate: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t and y_t = C_t h_t; in fp32 at least.

    Args:
        u: (B, L, E).
        dt: (B, L, E), 0 at padding.
        a: A, (E, N), below 0.
        b: (B, L, N).
        c: (B, L, N).
        before: h before the first token, (B, E, N); zeros where None.
        zoh: a zero-order hold for B, too.
        bias: (E,), where dt are not the steps: these are softplus(dt + bias), and dt is -inf at
            padding.
        skip: D, (E,); D u is added to y.
        gate: (B, L, E); y is multiplied by its silu at last.

    Returns:
        y, (B, L, E), in u's number format, and h after the last token, (B, E, N).
    """
    return _SCAN(u, dt, a, b, c, before, zoh, bias, skip, gate)


def _around(states: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """`selective_scan` by a function of u, steps, a, b, c, before and zoh."""

    def whole(
        u: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        before: Tensor | None,
        zoh: bool,
        bias: Tensor | None,
        skip: Tensor | None,
        gate: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        x = wide(u)
        steps = wide(dt)
        if bias is not None:
            steps = F.softplus(steps + bias)
        y, last = states(x, steps, a, b, c, before, zoh)
        if skip is not None:
            y = y + skip * x
        if gate is not None:
            y = y * F.silu(wide(gate))
        return y.to(u.dtype), last

    return whole


@_around
def _at_once(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, before: Tensor | None, zoh: bool
) -> tuple[Tensor, Tensor]:
    decay = torch.exp(dt[..., None] * a)
    if zoh:
        scaled = u[..., None] * ((decay - 1) / a)
    else:
        scaled = (dt * u)[..., None]
    entering = scaled * b[:, :, None]
    if before is not None:
        first = entering[:, 0] + decay[:, 0] * before
        entering = torch.cat([first[:, None], entering[:, 1:]], 1)
    states = scan(decay, entering)
    return (states @ c[..., None])[..., 0], states[:, -1]


_SCAN = Operation("mamba.scan", reference=_at_once)


def _fused(
    u: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    before: Tensor | None,
    zoh: bool,
    bias: Tensor | None,
    skip: Tensor | None,
    gate: Tensor | None,
) -> bool:
    """Whether the kernel takes it."""
    given = bias is not None and skip is not None and gate is not None and gate.stride(-1) == 1
    return given and not zoh and a.shape[1] <= WIDEST and kernels_run(u, dt, a, b, c, before)


# First on CUDA by count: the reference writes all states, N times as many numbers as u has, several
# times; this loads 3 times as many as u has, and stores as many.
@_SCAN.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_fused)
def _triton(
    u: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    before: Tensor | None,
    zoh: bool,
    *others: Tensor,
) -> tuple[Tensor, Tensor]:
    from subquad_plugins.numerics.selective_scan_kernel import Scan

    if before is None:
        before = a.new_zeros(len(u), *a.shape)
    bias, skip, gate = others
    return Scan.apply(u, dt, gate, b, c, a, bias, skip, before)  # pyright: ignore[reportReturnType]


def _small(u: Tensor, dt: Tensor, *others: Any) -> bool:
    return not others[4] and u.shape[1] > 0 and not torch.compiler.is_compiling()


@_SCAN.implementation("pieces", when=_small)
@_around
def _pieces(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, before: Tensor | None, zoh: bool
) -> tuple[Tensor, Tensor]:
    if before is None:
        start = u.new_zeros(len(u), *a.shape)
    else:
        start = before
    # Tokens first: what a step needs then lies together.
    y, last = _Pieces.apply(*(x.transpose(0, 1).contiguous() for x in (u, dt, b, c)), a, start)  # pyright: ignore
    return y.transpose(0, 1), last


class _Pieces(torch.autograd.Function):
    """u and dt (L, B, E), b and c (L, B, N), a (E, N), start (B, E, N) to y (L, B, E) and the
    last state (B, E, N).
    """

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, dt: Tensor, b: Tensor, c: Tensor, a: Tensor, start: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.size = max(1 if u.device.type == "cpu" else TOKENS, PIECE // start.numel())
        y = torch.empty_like(u)
        starts = []
        state = start
        for part in _parts(len(u), ctx.size):
            starts.append(state)
            _, states = _states(u[part], dt[part], b[part], a, state)
            torch.matmul(states, c[part, ..., None], out=y[part, ..., None])
            state = states[-1].clone()
        ctx.save_for_backward(u, dt, b, c, a, torch.stack(starts))
        return y, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        u, dt, b, c, a, starts = ctx.saved_tensors
        to_y, carried = grads
        to_u, to_dt, to_b, to_c, to_a = (torch.empty_like(x) for x in (u, dt, b, c, a))
        to_a.zero_()
        with torch.autocast(u.device.type, enabled=False):
            for at, part in reversed(list(enumerate(_parts(len(u), ctx.size)))):
                decay, states = _states(u[part], dt[part], b[part], a, starts[at])
                torch.matmul(to_y[part, :, None], states, out=to_c[part, :, None])
                grad = to_y[part, ..., None] * c[part, :, None]
                grad[-1] += carried
                for later in range(len(grad) - 1, 0, -1):
                    grad[later - 1].addcmul_(decay[later], grad[later])
                carried = decay[0] * grad[0]
                entering = (grad @ b[part, ..., None])[..., 0]
                torch.matmul((dt[part] * u[part])[:, :, None], grad, out=to_b[part, :, None])
                to_u[part] = entering * dt[part]
                grad.mul_(decay)
                grad[1:].mul_(states[:-1])
                grad[0].mul_(starts[at])
                to_a += (grad * dt[part, ..., None]).sum((0, 1))
                to_dt[part] = entering * u[part] + grad.mul_(a).sum(-1)
        return to_u, to_dt, to_b, to_c, to_a, carried


def _parts(length: int, size: int) -> list[slice]:
    return [slice(at, min(at + size, length)) for at in range(0, length, size)]


def _states(u: Tensor, dt: Tensor, b: Tensor, a: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """exp(dt A) and the states after each token of a piece, (T, B, E, N) both."""
    decay = (dt[..., None] * a).exp_()
    states = (dt * u)[..., None] * b[:, :, None]
    for factor, now in zip(decay, states, strict=True):
        state = now.addcmul_(factor, state)
    return decay, states

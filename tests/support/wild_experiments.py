"""Experiments on published modules as they are, without subquad: each is one figure.

Modules are 16 wide with 2 heads, with the weights that their package draws, and run in float64
where nothing else is said. `call(x, keep)` is a module with its own mask argument; a figure is a
difference over the largest output.

Shape letters: B batch, L length, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

D = 16
Call = Callable[[Tensor, Tensor | None], Tensor]
Make = Callable[[], tuple[nn.Module, Call]]


def later_tokens(make: Make) -> float:
    """Of 160 tokens the last 64 are replaced: how far the first 96 outputs move."""
    x = tokens(2, 160)
    changed = torch.cat([x[:, :96], 3 * tokens(2, 64, seed=9)], 1)
    return moved(make, (x, None), (changed, None), slice(2), slice(96))


def longer_sequence(make: Make) -> float:
    """96 tokens alone, and the same with 64 more behind them: how far their outputs move."""
    x = tokens(2, 160)
    return moved(make, (x[:, :96], None), (x, None), slice(2), slice(96))


def padded_content(make: Make) -> float:
    """The second of two samples has 100 real tokens of 160; other numbers stand in its padding: how
    far its real outputs move.
    """
    x = tokens(2, 160)
    keep = torch.arange(160) < torch.tensor([[160], [100]])
    other = torch.where(keep[..., None], x, 10 * tokens(2, 160, seed=9))
    return moved(make, (x, keep), (other, keep), slice(1, 2), slice(100))


def padded_amount(make: Make) -> float:
    """61 tokens alone, and with 99 padded ones behind them: how far their outputs move."""
    x = tokens(1, 160)
    keep = (torch.arange(160) < 61)[None]
    return moved(make, (x[:, :61], None), (x, keep), slice(1), slice(61))


def padded_before(make: Make) -> float:
    """64 tokens alone, and with 8 padded ones in front: how far their outputs move."""
    x = tokens(1, 72)
    keep = (torch.arange(72) >= 8)[None]
    module, call = make()
    module.double().eval()
    with torch.no_grad():
        return apart(call(x, keep)[:, 8:], call(x[:, 8:], None))


def mask_of_ones(make: Make) -> float:
    """20 tokens without a mask, and with one that says that all are real: how far outputs move."""
    x = tokens(2, 20)
    keep = torch.ones(2, 20, dtype=torch.bool)
    return moved(make, (x, None), (x, keep), slice(2), slice(20))


def other_samples(make: Make) -> float:
    """The second and third of three samples are replaced: how far the first one's outputs move."""
    x = tokens(3, 64)
    other = torch.cat([x[:1], 5 * tokens(2, 64, seed=8)])
    return moved(make, (x, None), (other, None), slice(1), slice(64))


def first_evaluated(make: Make) -> float:
    """Two modules with the same weights evaluate the same samples, behind another first batch: how
    far their outputs are apart.
    """
    x, outputs = tokens(2, 160), []
    for seed in (8, 9):
        module, call = make()
        module.double().eval()
        with torch.no_grad():
            for samples in (5 * tokens(2, 160, seed=seed), x):
                torch.manual_seed(5)
                out = call(samples, None)
        outputs.append(out)
    return apart(*outputs)


def two_calls(make: Make) -> float:
    """The same call in evaluation, twice: how far outputs move."""
    module, call = make()
    module.double().eval()
    x = tokens(2, 160)
    with torch.no_grad():
        first = call(x, None)
        return apart(call(x, None), first)


def slope(make: Make) -> float:
    """64 tokens, a step of 1e-6 to both sides: how far the gradient along it is from the quotient,
    over the larger of them.
    """
    module, call = make()
    module.double()
    x = tokens(2, 64).requires_grad_()
    step = tokens(2, 64, seed=3)
    weights = tokens(2, 64, seed=4)
    torch.manual_seed(5)
    (grad,) = torch.autograd.grad((call(x, None) * weights).sum(), x)
    by_gradient = float((grad * step).sum())
    sums = list[float]()
    for size in (1e-6, -1e-6):
        torch.manual_seed(5)
        with torch.no_grad():
            sums.append(float((call(x + size * step, None) * weights).sum()))
    by_steps = (sums[0] - sums[1]) / 2e-6
    return abs(by_gradient - by_steps) / max(abs(by_gradient), abs(by_steps))


def bf16_error(make: Make) -> float:
    """512 tokens under bf16 autocast and in float64: root mean square of the error over that of
    the outputs.
    """
    module, call = make()
    x = tokens(2, 512).float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        narrow = call(x, None).double()
    module.double()
    with torch.no_grad():
        wide = call(x.double(), None)
    return float((narrow - wide).square().mean().sqrt() / wide.square().mean().sqrt())


def bf16_loud(make: Make) -> float:
    """512 tokens, 60 times as large, under bf16 autocast: the share of outputs and of gradients by
    tokens that are no finite number.
    """
    _, call = make()
    x = (60 * tokens(2, 512)).float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = call(x, None)
    (grad,) = torch.autograd.grad(out.float().sum(), x)
    finite = torch.cat([out.detach().float(), grad]).isfinite()
    return float((~finite).double().mean())


def float32_error(make: Make) -> float:
    """512 tokens in float32 and in float64: root mean square of the error of outputs, and of the
    gradients of their squares by tokens, over that of the values; the larger of the two.
    """
    module, call = make()
    found = list[tuple[Tensor, Tensor]]()
    for dtype in (torch.float32, torch.float64):
        module.to(dtype)
        x = tokens(2, 512).float().to(dtype).requires_grad_()
        out = call(x, None)
        (grad,) = torch.autograd.grad(out.square().sum(), x)
        found.append((out.detach().double(), grad.double()))
    pairs = zip(*found, strict=True)
    return max(float((narrow - wide).norm() / wide.norm()) for narrow, wide in pairs)


def kept_tensors(make: Make) -> float:
    """A call in training: how many plain attributes of submodules then are tensors or hold some,
    which a state dict has not.
    """
    module, call = make()
    module.double().train()
    call(tokens(2, 64), None)
    kept = 0
    for part in module.modules():
        for name, value in vars(part).items():
            values = value.values() if isinstance(value, dict) else [value]
            if name not in ("_parameters", "_buffers"):
                kept += any(isinstance(value, Tensor) for value in values)
    return float(kept)


def bf16_call(make: Make) -> float:
    """64 tokens under bf16 autocast, forward and backward: 1 where that raises."""
    _, call = make()
    try:
        with torch.autocast("cpu", torch.bfloat16):
            out = call(tokens(2, 64).float().requires_grad_(), None)
        out.float().sum().backward()
    except (RuntimeError, NotImplementedError):
        return 1.0
    return 0.0


def all_padded(make: Make) -> float:
    """A sample without real tokens beside a full one, in evaluation: the share of its outputs that
    are no number.
    """
    module, call = make()
    module.double().eval()
    keep = torch.arange(12) < torch.tensor([[12], [0]])
    with torch.no_grad():
        return float(call(tokens(2, 12), keep)[1].isnan().double().mean())


def unused_weights(make: Make) -> float:
    """64 tokens, backward: how many weights have no gradient."""
    module, call = make()
    module.double()
    call(tokens(2, 64), None).sum().backward()
    return float(sum(weight.grad is None for weight in module.parameters()))


def tokens(batch: int, length: int, seed: int = 1) -> Tensor:
    """(B, L, D)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, D, dtype=torch.float64, generator=generator)


def moved(
    make: Make,
    first: tuple[Tensor, Tensor | None],
    second: tuple[Tensor, Tensor | None],
    samples: slice,
    positions: slice,
) -> float:
    """How far outputs at some places differ, over the largest; each call starts from the same
    random numbers, and from a module that was never called.
    """
    outs = list[Tensor]()
    for x, keep in (first, second):
        module, call = make()
        module.double().eval()
        torch.manual_seed(5)
        with torch.no_grad():
            outs.append(call(x, keep)[samples, positions])
    return apart(outs[1], outs[0])


def apart(out: Tensor, expected: Tensor) -> float:
    return float((out - expected).abs().max() / expected.abs().max())

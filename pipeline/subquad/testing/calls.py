"""Calling a mixer, its gradients, and the padded batches the checks feed it.

Shape letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer, as_output
from subquad.testing.check import CheckFailed
from subquad.testing.measure import finite
from subquad.testing.subject import CheckSubject


def call(mixer: nn.Module, x: Tensor, keep: Tensor | None = None, *, seed: int = 0) -> MixerOutput:
    """What the mixer returns; random numbers it draws start from `seed`."""
    torch.manual_seed(seed)
    return as_output(mixer(x, keep=keep))


def autocast_call(mixer: nn.Module, x: Tensor, keep: Tensor | None = None) -> MixerOutput:
    """As `call`, under bf16 autocast as the engine uses it: around the forward pass only."""
    with torch.autocast(x.device.type, torch.bfloat16):
        return call(mixer, x, keep)


def outputs(mixer: nn.Module, x: Tensor, keep: Tensor | None = None) -> Tensor:
    """(B, L, D), without a graph."""
    with torch.no_grad():
        return call(mixer, x, keep).out


def passes(
    what: str, mixer: TokenMixer, x: Tensor, keep: Tensor | None, run: Callable[..., MixerOutput] = call
) -> None:
    """One forward and backward pass.

    Raises:
        CheckFailed: the output has another shape, or something is not finite.
    """
    x = x.clone().requires_grad_()
    result = run(mixer, x, keep)
    if result.out.shape != x.shape:
        raise CheckFailed(f"{what}: output {tuple(result.out.shape)}, expected {tuple(x.shape)}")
    finite(f"{what}: output and losses", result.out, *result.losses.values())
    finite(f"{what}: gradients", *gradients_of(total_of(result), [x, *trainable(mixer).values()]))


def trainable(mixer: nn.Module) -> dict[str, nn.Parameter]:
    """Weights with a gradient, by name."""
    return {name: weight for name, weight in mixer.named_parameters() if weight.requires_grad}


def random_like(x: Tensor) -> Tensor:
    """Fixed random numbers of a shape: a weighted sum with them has a gradient in which nothing cancels."""
    generator = torch.Generator().manual_seed(11)
    return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)


def input_gradient(mixer: nn.Module, x: Tensor, keep: Tensor | None, chosen: Tensor) -> Tensor:
    """Gradient with respect to x of a weighted sum of the chosen outputs; zeros where they do not depend on it.

    Args:
        chosen: (B, L) bool.
    """
    x = x.detach().clone().requires_grad_()
    out = call(mixer, x, keep).out
    return gradients_of((out * random_like(out))[chosen].sum(), [x])[0]


def gradients_of(total: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients, zeros where the total does not depend on an input."""
    if not total.requires_grad:
        return [torch.zeros_like(one) for one in inputs]
    found = torch.autograd.grad(total, list(inputs), allow_unused=True)
    return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(inputs, found, strict=True)]


def total_of(result: MixerOutput, chosen: Tensor | None = None) -> Tensor:
    """A scalar that outputs and extra losses all count in.

    Args:
        chosen: (B, L) bool: the outputs that count; all where None.
    """
    weighted = result.out * random_like(result.out)
    total = (weighted if chosen is None else weighted[chosen]).sum()
    return sum(((1 + i) * loss.sum() for i, loss in enumerate(result.losses.values())), total)


def values_and_gradients(
    mixer: nn.Module, x: Tensor, keep: Tensor, *, seed: int = 0
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Output and extra losses, and gradients of their weighted sum by tokens and weights; by name."""
    x = x.clone().requires_grad_()
    result = call(mixer, x, keep, seed=seed)
    inputs = {"tokens": x, **trainable(mixer)}
    grads = zip(inputs, gradients_of(total_of(result), list(inputs.values())), strict=True)
    values = {"output": result.out.detach(), **{f"loss {k!r}": v.detach() for k, v in result.losses.items()}}
    return values, {f"gradient by {name.removeprefix('_orig_mod.')}": grad for name, grad in grads}


def padded(length: int, real: Sequence[int], *, lead: Sequence[int] | int = 0) -> Tensor:
    """Masks (B, L): `real` tokens of each sample after `lead` padded ones."""
    starts = [lead] * len(real) if isinstance(lead, int) else lead
    place = torch.arange(length)
    return torch.stack([(place >= start) & (place < start + n) for start, n in zip(starts, real, strict=True)])


def flushed_right(length: int, real: Sequence[int]) -> Tensor:
    """Masks (B, L) with all padding in front."""
    return padded(length, real, lead=[length - n for n in real])


class Chain(TokenMixer):
    """Two layers with their residual; the first hands its carry to the second, which is the last.

    Args:
        subject: what both layers are.
    """

    def __init__(self, subject: CheckSubject):
        super().__init__()
        self.first = subject.build(layer_index=0, seed=0)
        self.second = subject.build(layer_index=1, seed=1)
        self.loss_weights = {f"layer {i} {name}": w for i in (0, 1) for name, w in self.first.loss_weights.items()}
        self.eval()

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        below = as_output(self.first(x, keep=keep))
        above = as_output(self.second(x + below.out, keep=keep, carry=below.carry))
        losses = {
            f"layer {i} {name}": loss for i, one in enumerate((below, above)) for name, loss in one.losses.items()
        }
        return MixerOutput(above.out, losses)

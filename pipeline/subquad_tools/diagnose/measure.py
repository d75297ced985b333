"""What the mixers of a model do to a sequence, from their Jacobians at real samples; no code for
single mixers.

Letters: n real tokens of a sample, D model width, P probes, F frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from subquad.errors import PluginError
from subquad.nn import Backbone, Batch, TokenMixer, as_output

_ROWS = 256
"""Rows of a Jacobian that are taken in one backward pass."""
_FREQUENCIES = 33


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One mixer's Jacobian J, as an operator on tokens; means over samples, probes and channels.

    Attributes:
        layer: the module's name in the model.
        response: |J f| / |f| for waves f along the sequence, from frequency 0 to pi; (F,).
        singular_values: roots of the eigenvalues of the tokens' covariance of J's answer to white
            noise, largest first; for attention with one head, or any J = A x W, those of A times a
            constant.
        effective_rank: exp of the entropy of the singular values over their sum (Roy and Vetterli
            2007), over n.
    """

    layer: str
    response: tuple[float, ...]
    singular_values: tuple[float, ...]
    effective_rank: float


@dataclass(frozen=True, kw_only=True)
class Passport:
    """What was measured of one model.

    Attributes:
        operators: of each mixer, in the order of their calls.
        similarity: mean cosine between different tokens of a sample, of the first block's input and
            of each block's output.
    """

    operators: tuple[Operator, ...]
    similarity: tuple[float, ...]


@dataclass
class ModuleCall:
    """One call of a mixer, or of a block: what it was given and what came out."""

    name: str
    module: nn.Module
    given: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    out: Any = None


def passport(model: Backbone, batch: Batch, *, tokens: int = 512, probes: int = 4) -> Passport:
    """Measure a model on a batch, in evaluation mode.

    Args:
        model: on the CPU or a GPU.
        batch: on the same device; `keep` (B, L) says which tokens are real.
        tokens: of longer samples, the Jacobian is taken of their first so many real tokens to one
            another.
        probes: directions of the width that each output token's derivative is taken in.

    Raises:
        PluginError: the model has no token mixer, or one whose output has no derivative.
    """
    was_training = model.training
    model.eval()
    try:
        with (
            mixer_calls(model) as mixers,
            _watching(model, tuple({type(block) for block in model.blocks})) as blocks,
            torch.no_grad(),
        ):
            model(batch)
        if not mixers:
            raise PluginError(f"{type(model).__name__} has no token mixer to measure")
        operators = [
            _operator(call, real_positions(batch, call.given[0], call.named), tokens, probes)
            for call in mixers
        ]
        similarity = []
        for tree in (blocks[0].given, *[call.out for call in blocks]):
            tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
            states = next(tensor for tensor in tensors if tensor.dim() == 3)  # hidden, (B, L, D)
            similarity.append(_similarity(states, real_positions(batch, states, blocks[0].named)))
        return Passport(operators=tuple(operators), similarity=tuple(similarity))
    finally:
        model.train(was_training)


def mixer_calls(model: nn.Module) -> AbstractContextManager[list[ModuleCall]]:
    """Calls of a model's mixers in here, in their order; those within another one are left out."""
    return _watching(model, TokenMixer)


@contextmanager
def _watching(model: nn.Module, kinds: type | tuple[type, ...]) -> Iterator[list[ModuleCall]]:
    """Calls of all modules of some kinds, in their order; those within another one of them are
    left out.
    """
    calls: list[ModuleCall] = []
    outer: tuple[str, ...] = ()

    def note(name: str, *call: Any) -> None:
        calls.append(ModuleCall(name, *call))

    with ExitStack() as hooks:
        for name, module in model.named_modules():  # what is around a module comes before it
            if name and isinstance(module, kinds) and not name.startswith(outer):
                outer = (*outer, f"{name}.")
                hooks.enter_context(
                    module.register_forward_hook(partial(note, name), with_kwargs=True)
                )
        yield calls


def real_positions(batch: Batch, states: Tensor, named: dict[str, Any]) -> Tensor:
    """(B, L) bool, which positions of hidden states are real; prefix tokens are.

    What the module was told, else what the batch says, where that is of the same sequence.
    """
    samples, length, _ = states.shape
    keep = named.get("keep")
    if keep is None:
        keep = batch.get("keep")
    if keep is None or length - keep.shape[1] not in (0, 1):
        return states.new_ones(samples, length, dtype=torch.bool)
    return nn.functional.pad(keep, (length - keep.shape[1], 0), value=True)


def _similarity(states: Tensor, real: Tensor) -> float:
    """Mean cosine between different real tokens."""
    values = []
    for tokens, kept in zip(states.double(), real, strict=True):
        units = nn.functional.normalize(tokens[kept], dim=-1)
        count = len(units)
        if count > 1:
            values.append(
                float((units.sum(0).square().sum() - units.square().sum()) / (count * (count - 1)))
            )
    return fmean(values) if values else math.nan


def _operator(call: ModuleCall, real: Tensor, tokens: int, probes: int) -> Operator:
    energies = []
    spectra = []
    ranks = []
    for sample, kept in enumerate(real):
        places = kept.nonzero()[:tokens, 0]
        energy, covariance = _measured(call, sample, places, probes)
        spectrum = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt().flip(0)
        shares = spectrum / spectrum.sum().clamp_min(torch.finfo(spectrum.dtype).tiny)
        energies.append(energy)
        spectra.append(spectrum)
        ranks.append(float(torch.special.entr(shares).sum().exp()) / len(places))
    least = min(map(len, spectra))
    return Operator(
        layer=call.name,
        response=tuple(torch.stack(energies).mean(0).sqrt().tolist()),
        singular_values=tuple(
            torch.stack([spectrum[:least] for spectrum in spectra]).mean(0).tolist()
        ),
        effective_rank=fmean(ranks),
    )


def _measured(call: ModuleCall, sample: int, places: Tensor, probes: int) -> tuple[Tensor, Tensor]:
    """Energy of the response (F,), and the covariance (n, n) of the tokens at some places, of
    one sample, float64.
    """
    x = call.given[0][sample : sample + 1].detach()
    width = x.shape[2]
    drawn = torch.randn(
        width, min(probes, width), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    directions = torch.linalg.qr(drawn)[0].T.to(x)  # orthonormal, (P, D)
    # (2, F, n): cosines and sines from frequency 0 to pi, together of norm 1
    angles = torch.outer(
        torch.linspace(0, math.pi, _FREQUENCIES, dtype=torch.float64),
        torch.arange(len(places), dtype=torch.float64),
    )
    waves = torch.stack([angles.cos(), angles.sin()]).to(x.device) / math.sqrt(len(places))
    energy = waves.new_zeros(_FREQUENCIES)
    covariance = waves.new_zeros(len(places), len(places))
    for direction in directions:
        rows = [_rows(call, x, sample, some, direction) for some in places.split(_ROWS)]
        # (n, n, D): of output token i in this direction, to input token j
        jacobian = torch.cat(rows)[:, places].double()
        energy += torch.einsum("wfj,ijd->wfid", waves, jacobian).square().sum((0, 2, 3))
        covariance += torch.einsum("ijd,kjd->ik", jacobian, jacobian)
    # Of waves in all D channels, a direction of the output gets one part in D; the identity then
    # has response 1.
    return energy / len(directions), covariance / len(directions)


def _rows(call: ModuleCall, x: Tensor, sample: int, places: Tensor, direction: Tensor) -> Tensor:
    """(R, L, D): derivatives of some output tokens in one direction to all of the input."""
    many = len(places)

    def repeated(tensor: Tensor) -> Tensor:
        """Its sample many times."""
        if not tensor.dim():
            return tensor
        return tensor[sample].detach().expand(many, *tensor.shape[1:])

    inputs = x.repeat(many, 1, 1).requires_grad_()
    with torch.enable_grad():
        out = as_output(
            call.module(
                inputs,
                *tree_map_only(Tensor, repeated, call.given[1:]),
                **tree_map_only(Tensor, repeated, call.named),
            )
        ).out
    ends = torch.zeros_like(out)
    ends[torch.arange(many, device=x.device), places] = direction
    (grad,) = torch.autograd.grad(out, inputs, ends, allow_unused=True, materialize_grads=True)
    return grad

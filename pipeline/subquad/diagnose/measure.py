"""What the mixers of a model do to a sequence, from their Jacobians at real samples; no code for single mixers.

Letters: n real tokens of a sample, D model width, P probes, F frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

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
        singular_values: roots of the eigenvalues of the tokens' covariance of J's answer to white noise, largest first;
            for attention with one head, or any J = A x W, those of A times a constant.
        effective_rank: exp of the entropy of the singular values over their sum (Roy and Vetterli 2007), over n.
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
        similarity: mean cosine between different tokens of a sample, of the first block's input and of each block's
            output.
    """

    operators: tuple[Operator, ...]
    similarity: tuple[float, ...]


@dataclass
class Seen:
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
        tokens: of longer samples, the Jacobian is taken of their first so many real tokens to one another.
        probes: directions of the width that each output token's derivative is taken in.

    Raises:
        PluginError: the model has no token mixer, or one whose output has no derivative.
    """
    was_training = model.training
    model.eval()
    try:
        layers = tuple({type(one) for one in model.blocks})
        with mixer_calls(model) as mixers, _watching(model, layers) as blocks, torch.no_grad():
            model(batch)
        if not mixers:
            raise PluginError(f"{type(model).__name__} has no token mixer to measure")
        operators = [
            _operator(seen, real_positions(batch, seen.given[0], seen.named), tokens, probes) for seen in mixers
        ]
        states = [_states(blocks[0].given), *(_states(seen.out) for seen in blocks)]
        similarity = [_similarity(one, real_positions(batch, one, blocks[0].named)) for one in states]
        return Passport(operators=tuple(operators), similarity=tuple(similarity))
    finally:
        model.train(was_training)


def mixer_calls(model: nn.Module) -> AbstractContextManager[list[Seen]]:
    """Calls of a model's mixers in here, in their order; those within another one are left out."""
    return _watching(model, TokenMixer)


@contextmanager
def _watching(model: nn.Module, kinds: type | tuple[type, ...]) -> Iterator[list[Seen]]:
    """Calls of all modules of some kinds, in their order; those within another one of them are left out."""
    seen: list[Seen] = []
    modules = {name: one for name, one in model.named_modules() if name and isinstance(one, kinds)}
    outer = {name: one for name, one in modules.items() if not any(name.startswith(f"{other}.") for other in modules)}

    def note(name: str, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        seen.append(Seen(name, module, given, named, out))

    hooks = [one.register_forward_hook(partial(note, name), with_kwargs=True) for name, one in outer.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _states(tree: Any) -> Tensor:
    """The hidden states (B, L, D) among what a block was given or returned: the first tensor of three axes."""
    found = [tree] if isinstance(tree, Tensor) else list(tree) if isinstance(tree, (tuple, list)) else []
    return next(one for one in found if isinstance(one, Tensor) and one.dim() == 3)


def real_positions(batch: Batch, states: Tensor, named: dict[str, Any]) -> Tensor:
    """(B, L) bool, which positions of hidden states are real; prefix tokens are.

    What the module was told, else what the batch says, where that is of the same sequence.
    """
    told = named.get("keep")
    keep = batch.get("keep") if told is None else told
    prefix = states.shape[1] - keep.shape[1] if keep is not None else -1
    if keep is None or not 0 <= prefix <= 1:
        return torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    return nn.functional.pad(keep, (prefix, 0), value=True)


def _similarity(states: Tensor, real: Tensor) -> float:
    """Mean cosine between different real tokens."""
    values = []
    for tokens, kept in zip(states.double(), real, strict=True):
        units, count = nn.functional.normalize(tokens[kept], dim=-1), int(kept.sum())
        if count > 1:
            values.append(float((units.sum(0).square().sum() - units.square().sum()) / (count * (count - 1))))
    return sum(values) / len(values) if values else math.nan


def _operator(seen: Seen, real: Tensor, tokens: int, probes: int) -> Operator:
    answers, spectra = [], []
    for sample in range(len(real)):
        energy, covariance = _measured(seen, sample, real[sample].nonzero()[:tokens, 0], probes)
        answers.append(energy)
        spectra.append(torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt().flip(0))
    least = min(map(len, spectra))
    ranks = [float(_effective_rank(one)) / len(one) for one in spectra]
    return Operator(
        layer=seen.name,
        response=tuple(torch.stack(answers).mean(0).sqrt().tolist()),
        singular_values=tuple(torch.stack([one[:least] for one in spectra]).mean(0).tolist()),
        effective_rank=sum(ranks) / len(ranks),
    )


def _effective_rank(singular_values: Tensor) -> Tensor:
    share = singular_values / singular_values.sum().clamp_min(torch.finfo(singular_values.dtype).tiny)
    return torch.special.entr(share).sum().exp()


def _measured(seen: Seen, sample: int, places: Tensor, probes: int) -> tuple[Tensor, Tensor]:
    """Energy of the response (F,), and the covariance (n, n) of the tokens at some places, of one sample, float64."""
    x = seen.given[0][sample : sample + 1].detach()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(x.shape[2], min(probes, x.shape[2]), generator=generator, dtype=torch.float64)
    directions = torch.linalg.qr(drawn).Q.T.to(x)  # (P, D), orthonormal
    waves = _waves(len(places)).to(x.device)
    energy = torch.zeros(_FREQUENCIES, dtype=torch.float64, device=x.device)
    covariance = torch.zeros(len(places), len(places), dtype=torch.float64, device=x.device)
    for direction in directions:
        rows = torch.cat([_rows(seen, x, sample, some, direction) for some in places.split(_ROWS)])
        jacobian = rows[:, places].double()  # (n, n, D): of output token i in this direction, to input token j
        answer = torch.einsum("wfj,ijd->wfid", waves, jacobian)
        energy += answer.square().sum((0, 2, 3))
        covariance += torch.einsum("ijd,kjd->ik", jacobian, jacobian)
    # Of waves in all D channels, a direction of the output gets one part in D; the identity then has response 1.
    return energy / len(directions), covariance / len(directions)


def _waves(count: int) -> Tensor:
    """(2, F, n) float64: cosines and sines from frequency 0 to pi, together of norm 1."""
    omega = torch.linspace(0, math.pi, _FREQUENCIES, dtype=torch.float64)[:, None]
    angles = omega * torch.arange(count, dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()]) / math.sqrt(count)


def _rows(seen: Seen, x: Tensor, sample: int, places: Tensor, direction: Tensor) -> Tensor:
    """(R, L, D): derivatives of some output tokens in one direction to all of the input."""
    many = len(places)
    inputs = x.repeat(many, 1, 1).requires_grad_()
    named = {name: _repeated(value, sample, many) for name, value in seen.named.items()}
    others = [_repeated(value, sample, many) for value in seen.given[1:]]
    with torch.enable_grad():
        out = as_output(seen.module(inputs, *others, **named)).out
        asked = torch.zeros_like(out)
        asked[torch.arange(many, device=x.device), places] = direction
        (found,) = torch.autograd.grad(out, inputs, asked, allow_unused=True)
    if found is None:
        return torch.zeros_like(inputs)
    return found


def _repeated(tree: Any, sample: int, many: int) -> Any:
    """One sample of each tensor of a tree, many times."""
    if isinstance(tree, Tensor):
        return tree[sample : sample + 1].detach().expand(many, *tree.shape[1:]) if tree.dim() else tree
    if isinstance(tree, dict):
        return {name: _repeated(one, sample, many) for name, one in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_repeated(one, sample, many) for one in tree)
    return tree

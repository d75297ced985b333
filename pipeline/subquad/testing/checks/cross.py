"""Attention cores: queries and keys of different lengths, and weights of a softmax model."""

from __future__ import annotations

import torch
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import AttentionCore, AttentionMixer
from subquad.plugin import AttentionConfig, Site
from subquad.testing.calls import padded, weights
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.measure import ROUNDING, Meter, finite
from subquad.testing.subject import Subject

QUERIES, KEYS = 7, 11


def no_cross(subject: Subject) -> str:
    """Why cross-attention is not checked."""
    if not subject.facts.cross:
        return "cross not claimed"
    return "built causal: no order between two sequences" if subject.causal else ""


def takes_cross(subject: Subject) -> str:
    """Why a refusal of cross-attention is not checked."""
    if not subject.is_core:
        return "a token mixer takes one sequence"
    return "" if subject.causal or not subject.facts.cross else "cross claimed"


def cross(subject: Subject) -> Finding:
    """More keys than queries and fewer: shapes, padded keys and padded queries without influence, samples apart."""
    mixer, meter = _attention(subject), Meter(subject.facts.leak)
    for queries, keys in ((QUERIES, KEYS), (KEYS, QUERIES), (1, KEYS), (QUERIES, 1)):
        _shapes(subject, mixer, queries, keys)
        if subject.facts.padding_invariant:
            _padding(subject, mixer, queries, keys, meter)
    return meter.finding(f"{QUERIES} queries with {KEYS} keys and the reverse")


def _shapes(subject: Subject, mixer: AttentionMixer, queries: int, keys: int) -> None:
    x, context = (subject.tokens(3, n, seed=n).requires_grad_() for n in (queries, keys))
    out = mixer(x, context=context, keep=_mask(queries), context_keep=_mask(keys)).out
    if out.shape != x.shape:
        raise CheckFailed(f"{queries} queries with {keys} keys: output {tuple(out.shape)}, expected {tuple(x.shape)}")
    (out * weights(out)).sum().backward()
    finite(f"{queries} queries with {keys} keys: outputs and gradients", out, x.grad, context.grad)


def _padding(subject: Subject, mixer: AttentionMixer, queries: int, keys: int, meter: Meter) -> None:
    x, context = subject.tokens(3, queries, seed=1), subject.tokens(3, keys, seed=2)
    keep, context_keep = _mask(queries), _mask(keys)

    def at_real(x: Tensor, context: Tensor) -> Tensor:
        with torch.no_grad():
            return mixer(x, context=context, keep=keep, context_keep=context_keep).out[keep]

    expected = at_real(x, context)
    label = f"{queries} queries with {keys} keys: output at real queries, other content in padded"
    meter.compare(f"{label} keys", at_real(x, torch.where(context_keep[..., None], context, 9.0)), expected)
    meter.compare(f"{label} queries", at_real(torch.where(keep[..., None], x, 9.0), context), expected)
    changed = at_real(torch.cat([x[:1], x[1:] + 1]), torch.cat([context[:1], 2 * context[1:]]))
    first = int(keep[0].sum())
    meter.compare(
        f"{queries} queries with {keys} keys: output of sample 0, others changed", changed[:first], expected[:first]
    )
    with torch.no_grad():
        real = int(context_keep[1].sum())
        alone = mixer(x[1:2], context=context[1:2, :real], keep=keep[1:2]).out[keep[1:2]]
    mine = expected[first : first + int(keep[1].sum())]
    Meter(ROUNDING).compare(f"{queries} queries with {keys} keys: padded keys left away", alone, mine)


def cross_refused(subject: Subject) -> Finding:
    """Another number of queries than keys is refused with a PluginError, or, in a causal core, may work."""
    mixer = _attention(subject)
    x, context = subject.tokens(2, QUERIES), subject.tokens(2, KEYS, seed=2)
    try:
        with torch.no_grad():
            mixer(x, context=context)
    except PluginError as error:
        return Finding(f"refused: {error}")
    raise CheckFailed(f"{QUERIES} queries with {KEYS} keys were taken, though cross-attention is not possible here")


def softmax_weights(subject: Subject) -> Finding:
    """The projections have the names and shapes that any core has, so weights of a softmax model load."""
    config = subject.config if isinstance(subject.config, AttentionConfig) else AttentionConfig()
    site = Site(dim=subject.dim, num_heads=subject.num_heads, causal=subject.causal)
    plain, mixer = AttentionMixer(_Plain(), site, config).double(), _attention(subject)
    found = mixer.load_state_dict(plain.state_dict(), strict=False)
    missing = [name for name in found.missing_keys if not name.startswith("core.")]
    if missing or found.unexpected_keys:
        raise CheckFailed(
            f"weights of a softmax model do not fit: missing {missing}, unexpected {found.unexpected_keys}"
        )
    with torch.no_grad():
        finite("output with weights of a softmax model", mixer(subject.tokens(2, KEYS)).out)
    return Finding(f"{len(plain.state_dict())} tensors")


class _Plain(AttentionCore):
    """A core without weights."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        return torch.softmax(q @ k.mT, -1) @ v


def _attention(subject: Subject) -> AttentionMixer:
    mixer = subject.build()
    if not isinstance(mixer, AttentionMixer):
        raise CheckFailed(f"cross is claimed, but {type(mixer).__name__} is no attention core and takes one sequence")
    return mixer


def _mask(length: int) -> Tensor:
    return padded(length, (length, max(1, length - 2), max(1, length // 2)))


def own_projections(subject: Subject) -> str:
    """Why weights of a softmax model are not loaded."""
    return "" if subject.is_core else "owns its projections"


CHECKS = (
    Check(
        name="cross", shows="queries and keys of two lengths, padding of neither counts", run=cross, excluded=no_cross
    ),
    Check(
        name="cross-refused",
        shows="where it is not claimed, cross-attention is refused in words",
        run=cross_refused,
        excluded=takes_cross,
    ),
    Check(
        name="softmax-weights",
        shows="weights of a softmax model load into it",
        run=softmax_weights,
        excluded=own_projections,
    ),
)

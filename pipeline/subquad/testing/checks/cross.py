"""One sequence that sees another: of two lengths, in decoding, or refused; and weights of a softmax model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from subquad.errors import PluginError
from subquad.nn import AttentionCore, AttentionMixer, TokenMixer, as_output
from subquad.plugin import AttentionConfig, Site
from subquad.testing.calls import padded, random_like
from subquad.testing.check import CheckFailed, Finding, shows
from subquad.testing.checks.cache import STARTS, STEPS, next_tokens, reordered
from subquad.testing.measure import ROUNDING, Meter, finite
from subquad.testing.subject import CheckSubject

QUERIES, KEYS = 7, 11


def _no_cross(subject: CheckSubject) -> str:
    """Why cross-attention is not checked."""
    if not subject.facts.cross:
        return "cross not claimed"
    return "built causal: no order between two sequences" if subject.causal else ""


def _no_cross_cache(subject: CheckSubject) -> str:
    """Why decoding with another sequence is not checked."""
    return _no_cross(subject) or ("" if subject.build(role="cross").caches else "offers no decode cache across")


def _takes_cross(subject: CheckSubject) -> str:
    """Why a refusal of cross-attention is not checked."""
    if not subject.is_core:
        return "a token mixer takes one sequence"
    return "" if subject.causal or not subject.facts.cross else "cross claimed"


@shows("queries and keys of two lengths, padding of neither counts", excluded=_no_cross)
def _cross(subject: CheckSubject) -> Finding:
    """More keys than queries and fewer: shapes, padded keys and padded queries without influence, samples apart."""
    mixer, meter = subject.build(role="cross"), Meter(subject.facts.leak)
    for queries, keys in ((QUERIES, KEYS), (KEYS, QUERIES), (1, KEYS), (QUERIES, 1)):
        _shapes(subject, mixer, queries, keys)
        if subject.facts.padding_invariant:
            _padding(subject, mixer, queries, keys, meter)
    return meter.finding(f"{QUERIES} queries with {KEYS} keys and the reverse")


def _out(mixer: TokenMixer, x: Tensor, context: Tensor, keep: Tensor | None, context_keep: Tensor | None) -> Tensor:
    """(B, Lq, D)."""
    return as_output(mixer(x, keep=keep, context=context, context_keep=context_keep)).out


def _shapes(subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int) -> None:
    x, context = (subject.tokens(3, n, seed=n).requires_grad_() for n in (queries, keys))
    out = _out(mixer, x, context, _mask(queries), _mask(keys))
    if out.shape != x.shape:
        raise CheckFailed(f"{queries} queries with {keys} keys: output {tuple(out.shape)}, expected {tuple(x.shape)}")
    (out * random_like(out)).sum().backward()
    finite(f"{queries} queries with {keys} keys: outputs and gradients", out, x.grad, context.grad)


def _padding(subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int, meter: Meter) -> None:
    x, context = subject.tokens(3, queries, seed=1), subject.tokens(3, keys, seed=2)
    keep, context_keep = _mask(queries), _mask(keys)

    def at_real(x: Tensor, context: Tensor) -> Tensor:
        with torch.no_grad():
            return _out(mixer, x, context, keep, context_keep)[keep]

    expected, lengths = at_real(x, context), f"{queries} queries with {keys} keys"
    label = f"{lengths}: output at real queries, other content in padded"
    meter.compare(f"{label} keys", at_real(x, torch.where(context_keep[..., None], context, 9.0)), expected)
    meter.compare(f"{label} queries", at_real(torch.where(keep[..., None], x, 9.0), context), expected)
    changed = at_real(torch.cat([x[:1], x[1:] + 1]), torch.cat([context[:1], 2 * context[1:]]))
    first, second = (int(one) for one in keep[:2].sum(1))
    meter.compare(f"{lengths}: output of sample 0, others changed", changed[:first], expected[:first])
    with torch.no_grad():
        alone = _out(mixer, x[1:2], context[1:2, : int(context_keep[1].sum())], keep[1:2], None)[keep[1:2]]
    Meter(ROUNDING).compare(f"{lengths}: padded keys left away", alone, expected[first : first + second])


@shows("with another sequence in memory, prefill and steps return what forward does", excluded=_no_cross_cache)
def _cross_cache(subject: CheckSubject) -> Finding:
    """Memory is built once and left alone; samples of different lengths; beams reorder memory and cache alike."""
    mixer, meter = subject.build(role="cross"), Meter(ROUNDING)
    longest, order = max(STARTS), torch.tensor([2, 0, 0, 1])
    x, context, keep = subject.tokens(3, longest + STEPS), subject.tokens(3, KEYS, seed=2), padded(longest, STARTS)
    with torch.no_grad():
        memory = mixer.memory(context, keep=_mask(KEYS))
        built = [one.clone() for one in tree_leaves(memory) if isinstance(one, Tensor)]
        start = x[:, :longest].contiguous()
        out, cache = mixer.prefill(start, keep=keep, memory=memory)  # pyright: ignore[reportCallIssue]
        meter.compare("prefill against forward", out[keep], _out(mixer, start, context, keep, _mask(KEYS))[keep])
        expected = _out(mixer, x, context, None, _mask(KEYS))
        for i in range(STEPS):
            wanted = torch.stack([expected[b, start + i] for b, start in enumerate(STARTS)])
            token, beam = next_tokens(x, i), (reordered(cache, order), reordered(memory, order))
            moved, _ = mixer.step(token[order], beam[0], memory=beam[1])  # pyright: ignore[reportCallIssue]
            meter.compare(f"step {i + 1} after reordering memory and cache", moved, wanted[order])
            out, cache = mixer.step(token, cache, memory=memory)  # pyright: ignore[reportCallIssue]
            meter.compare(f"step {i + 1} against forward", out, wanted)
    if not all(map(torch.equal, built, (one for one in tree_leaves(memory) if isinstance(one, Tensor)))):
        raise CheckFailed("decoding changed the memory it was given in place")
    return meter.finding(f"{KEYS} keys in memory, samples of {', '.join(map(str, STARTS))} tokens, {STEPS} steps")


@shows("where it is not claimed, cross-attention is refused in words", excluded=_takes_cross)
def _cross_refused(subject: CheckSubject) -> Finding:
    """Another number of queries than keys is refused with a PluginError, or, in a causal core, may work."""
    mixer = _attention(subject)
    x, context = subject.tokens(2, QUERIES), subject.tokens(2, KEYS, seed=2)
    try:
        with torch.no_grad():
            mixer(x, context=context)
    except PluginError as error:
        return Finding(f"refused: {error}")
    raise CheckFailed(f"{QUERIES} queries with {KEYS} keys were taken, though cross-attention is not possible here")


def _own_projections(subject: CheckSubject) -> str:
    """Why weights of a softmax model are not loaded."""
    return "" if subject.is_core else "owns its projections"


@shows("weights of a softmax model load into it", excluded=_own_projections)
def _softmax_weights(subject: CheckSubject) -> Finding:
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


def _attention(subject: CheckSubject) -> AttentionMixer:
    mixer = subject.build()
    assert isinstance(mixer, AttentionMixer)
    return mixer


def _mask(length: int) -> Tensor:
    return padded(length, (length, max(1, length - 2), max(1, length // 2)))

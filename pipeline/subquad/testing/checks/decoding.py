"""Decoding and cross-attention: prefill and steps equal the forward pass; a sequence may see another, or is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from subquad.errors import PluginError
from subquad.nn import AttentionCore, AttentionMixer, Cache, TokenMixer
from subquad.plugin import AttentionConfig, Site
from subquad.registry import build_class
from subquad.testing.check import ROUNDING, CheckFailed, Finding, Meter, finite, shows
from subquad.testing.subject import FAR, CheckSubject, afresh, call, modes, outputs, padded, weighted

STARTS, STEPS, MANY = (9, 4, 1), 6, 290
"""Real tokens of each sample before decoding, and tokens decoded; also many of them."""
LONGEST = max(STARTS)
SAID = f"samples of {', '.join(map(str, STARTS))} tokens, {{}} steps"
ORDER = torch.tensor([2, 0, 0, 1])
"""Samples as a beam search may reorder them."""
QUERIES, KEYS = 7, 11


def _no_cache(subject: CheckSubject) -> str:
    if subject.build().caches:
        return ""
    return "offers no decode cache" if subject.causal else "not causal, offers no decode cache"


@shows("prefill returns what forward does", excluded=_no_cache)
def _cache_prefill(subject: CheckSubject) -> Finding:
    if not subject.causal:
        raise CheckFailed("caches is True in a mixer that sees later positions")
    meter = Meter(ROUNDING)
    for length in dict.fromkeys((LONGEST, subject.at_most(FAR))):
        real = [length - LONGEST + start for start in STARTS]
        mixer, x, keep = subject.build(max_len=length), subject.tokens(3, length), padded(length, real)
        with torch.no_grad():
            got = mixer.prefill(x, keep=keep)[0]
            meter.compare(f"prefill of {length} against forward, padded", got[keep], outputs(mixer, x, keep)[keep])
            meter.compare(f"prefill of {length} against forward, no mask", mixer.prefill(x)[0], outputs(mixer, x))
    return meter.finding()


@shows("steps equal the full forward pass, each sample from its own length", excluded=_no_cache)
def _cache_step(subject: CheckSubject) -> Finding:
    """Many steps from short samples, twice, so that the second sequence would show what is left of the first; and a few
    from long ones.
    """
    most = subject.at_most(FAR)
    many, meter = max(1, min(MANY, most - LONGEST)), Meter(ROUNDING)
    mixer = subject.build(max_len=most)
    with torch.no_grad():
        for seed, more, steps in ((1, 0, many), (2, 0, many), (3, max(0, most - LONGEST - STEPS), min(STEPS, many))):
            x = subject.tokens(3, LONGEST + more + steps, seed=seed)
            expected, cache = outputs(mixer, x), _started(mixer, x, more)
            for i in range(more, more + steps):
                out, cache = mixer.step(_next(x, i), cache)
                meter.compare(f"step {i + 1} against forward", out, _next(expected, i))
        out, _ = mixer.step(x[:, 1].contiguous(), mixer.prefill(x[:, :1].contiguous())[1])
        meter.compare("first step after prefill of one token without a mask", out, expected[:, 1])
    return meter.finding(SAID.format(many))


@shows("a step leaves the cache it was given alone", excluded=_no_cache)
def _cache_functional(subject: CheckSubject) -> Finding:
    mixer, meter, x = subject.build(), Meter(0.0), subject.tokens(3, LONGEST + 2)
    with torch.no_grad():
        cache = _started(mixer, x)
        for i in range(2):
            kept = _tensors(cache)
            first, after = mixer.step(_next(x, i), cache)
            for now, then in zip(_tensors(cache), kept, strict=True):
                if not torch.equal(now, then):
                    raise CheckFailed(f"step changed the cache it was given in place, a tensor {tuple(now.shape)}")
            meter.compare("a second step from the same cache", mixer.step(_next(x, i), cache)[0], first)
            cache = after
    return meter.finding()


@shows("reordering a cache's samples reorders the outputs", excluded=_no_cache)
def _cache_beams(subject: CheckSubject) -> Finding:
    mixer, meter, x = subject.build(), Meter(ROUNDING), subject.tokens(3, LONGEST + 2)
    with torch.no_grad():
        cache = _started(mixer, x)
        for i, what in enumerate(("step after reordering the cache of prefill", "step after reordering the cache")):
            moved = _reordered(cache)  # before the next step, which may spoil the cache: another check's matter
            got = mixer.step(_next(x, i)[ORDER], moved)[0]
            expected, cache = mixer.step(_next(x, i), cache)
            meter.compare(what, got, expected[ORDER])
    return meter.finding(f"{len(tree_leaves(cache))} tensors")


def _reordered(cache: Cache) -> Cache:
    """A cache with its samples in another order.

    Raises:
        CheckFailed: it holds something that no sample owns.
    """

    def moved(leaf: Any) -> Tensor | None:
        if leaf is None:
            return None
        if not isinstance(leaf, Tensor):
            raise CheckFailed(f"the cache holds a {type(leaf).__name__} ({leaf}), which no sample owns")
        if not leaf.dim() or leaf.shape[0] != len(STARTS):
            raise CheckFailed(
                f"the cache holds a tensor {tuple(leaf.shape)} without the batch of {len(STARTS)} in front"
            )
        return leaf.index_select(0, ORDER)

    return tree_map(moved, cache)


def _started(mixer: TokenMixer, x: Tensor, more: int = 0) -> Cache:
    """A cache of each sample's start, and of `more` tokens."""
    length = LONGEST + more
    return mixer.prefill(x[:, :length].contiguous(), keep=padded(length, [start + more for start in STARTS]))[1]


def _next(x: Tensor, i: int) -> Tensor:
    """What belongs to the i-th token of each sample after its start: (B, L, D) to (B, D)."""
    return torch.stack([x[b, start + i] for b, start in enumerate(STARTS)])


def _tensors(cache: Cache) -> list[Tensor]:
    """Copies of all tensors of a cache."""
    return [one.clone() for one in tree_leaves(cache) if isinstance(one, Tensor)]


def _no_cross(subject: CheckSubject) -> str:
    if not subject.facts.cross:
        return "cross not claimed"
    return "built causal: no order between two sequences" if subject.causal else ""


def _no_cross_cache(subject: CheckSubject) -> str:
    return _no_cross(subject) or ("" if subject.build(role="cross").caches else "offers no decode cache across")


@shows("queries and keys of two lengths, padding of neither counts", excluded=_no_cross)
def _cross(subject: CheckSubject) -> Finding:
    """More keys than queries and fewer: shapes, padded keys and padded queries without influence, samples apart."""
    mixer, meter = subject.build(role="cross"), Meter(subject.facts.leak)
    lengths = ((QUERIES, KEYS), (KEYS, QUERIES), (1, KEYS), (QUERIES, 1))
    for _, (queries, keys) in ((mode, pair) for mode in modes(mixer) for pair in lengths):
        _cross_shapes(subject, mixer, queries, keys)
        if subject.facts.padding_invariant:
            _cross_padding(subject, mixer, queries, keys, meter)
    return meter.finding(f"{QUERIES} queries with {KEYS} keys and the reverse")


def _cross_shapes(subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int) -> None:
    x, context = (subject.tokens(3, n, seed=n).requires_grad_() for n in (queries, keys))
    out = _across(mixer, x, context, _mask(queries), _mask(keys))
    if out.shape != x.shape:
        raise CheckFailed(f"{queries} queries with {keys} keys: output {tuple(out.shape)}, expected {tuple(x.shape)}")
    weighted(out).sum().backward()
    finite(f"{queries} queries with {keys} keys: outputs and gradients", out, x.grad, context.grad)


@torch.no_grad()
def _cross_padding(subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int, meter: Meter) -> None:
    x, context = subject.tokens(3, queries, seed=1), subject.tokens(3, keys, seed=2)
    keep, context_keep = _mask(queries), _mask(keys)

    def at_real(x: Tensor, context: Tensor) -> Tensor:
        return _across(mixer, x, context, keep, context_keep)[keep]

    expected, lengths = at_real(x, context), f"{queries} queries with {keys} keys"
    label = f"{lengths}: output at real queries, other content in padded"
    meter.compare(f"{label} keys", at_real(x, torch.where(context_keep[..., None], context, 9.0)), expected)
    meter.compare(f"{label} queries", at_real(torch.where(keep[..., None], x, 9.0), context), expected)
    changed = at_real(torch.cat([x[:1], x[1:] + 1]), torch.cat([context[:1], 2 * context[1:]]))
    first, second = (int(one) for one in keep[:2].sum(1))
    meter.compare(f"{lengths}: output of sample 0, others changed", changed[:first], expected[:first])
    if mixer.training:  # random numbers would be other ones
        return
    alone = _across(mixer, x[1:2], context[1:2, : int(context_keep[1].sum())], keep[1:2], None)[keep[1:2]]
    Meter(ROUNDING).compare(f"{lengths}: padded keys left away", alone, expected[first : first + second])


@shows("with another sequence in memory, prefill and steps return what forward does", excluded=_no_cross_cache)
@torch.no_grad()
def _cross_cache(subject: CheckSubject) -> Finding:
    """Memory is built once and left alone; samples of different lengths; beams reorder memory and cache alike."""
    mixer: Any = subject.build(role="cross")  # its prefill and step take a memory
    meter, keep, keys = Meter(ROUNDING), padded(LONGEST, STARTS), _mask(KEYS)
    x, context = subject.tokens(3, LONGEST + STEPS), subject.tokens(3, KEYS, seed=2)
    memory = mixer.memory(context, keep=keys)
    built, start = _tensors(memory), x[:, :LONGEST].contiguous()
    out, cache = mixer.prefill(start, keep=keep, memory=memory)
    meter.compare("prefill against forward", out[keep], _across(mixer, start, context, keep, keys)[keep])
    expected = _across(mixer, x, context, None, keys)
    for i in range(STEPS):
        token, wanted = _next(x, i), _next(expected, i)
        moved, _ = mixer.step(token[ORDER], _reordered(cache), memory=_reordered(memory))
        meter.compare(f"step {i + 1} after reordering memory and cache", moved, wanted[ORDER])
        out, cache = mixer.step(token, cache, memory=memory)
        meter.compare(f"step {i + 1} against forward", out, wanted)
    if not all(map(torch.equal, built, _tensors(memory))):
        raise CheckFailed("decoding changed the memory it was given in place")
    return meter.finding(f"{KEYS} keys in memory, {SAID.format(STEPS)}")


def _takes_cross(subject: CheckSubject) -> str:
    if not _is_core(subject):
        return "a token mixer takes one sequence"
    return "" if subject.causal or not subject.facts.cross else "cross claimed"


@shows("where it is not claimed, cross-attention is refused in words", excluded=_takes_cross)
def _cross_refused(subject: CheckSubject) -> Finding:
    """Another number of queries than keys is refused with a PluginError."""
    try:
        with torch.no_grad():
            _across(subject.build(), subject.tokens(2, QUERIES), subject.tokens(2, KEYS, seed=2), None, None)
    except PluginError as error:
        return Finding(f"refused: {error}")
    raise CheckFailed(f"{QUERIES} queries with {KEYS} keys were taken, though cross-attention is not possible here")


def _across(mixer: TokenMixer, x: Tensor, context: Tensor, keep: Tensor | None, context_keep: Tensor | None) -> Tensor:
    """The output (B, Lq, D) of a mixer that sees another sequence."""
    across = partial(afresh(mixer), context=context, context_keep=context_keep)
    return call(across, x, keep).out


def _mask(length: int) -> Tensor:
    return padded(length, (length, max(1, length - 2), max(1, length // 2)))


def _is_core(subject: CheckSubject) -> bool:
    """Whether it is an attention core, whose projections subquad owns."""
    return issubclass(build_class(subject.resolved), AttentionCore)


@shows(
    "weights of a softmax model load into it",
    excluded=lambda subject: "" if _is_core(subject) else "owns its projections",
)
def _softmax_weights(subject: CheckSubject) -> Finding:
    """The projections have the names and shapes that any core has, so weights of a softmax model load."""
    config = subject.config if isinstance(subject.config, AttentionConfig) else None
    site = Site(dim=subject.dim, num_heads=subject.num_heads, causal=subject.causal)
    plain, mixer = AttentionMixer(_Plain(), site, config).double(), subject.build()
    found = mixer.load_state_dict(plain.state_dict(), strict=False)
    missing = [name for name in found.missing_keys if not name.startswith("core.")]
    if missing or found.unexpected_keys:
        raise CheckFailed(
            f"weights of a softmax model do not fit: missing {missing}, unexpected {found.unexpected_keys}"
        )
    finite("output with weights of a softmax model", outputs(mixer, subject.tokens(2, KEYS)))
    return Finding(f"{len(plain.state_dict())} tensors")


class _Plain(AttentionCore):
    """A core without weights."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        return torch.softmax(q @ k.mT, -1) @ v

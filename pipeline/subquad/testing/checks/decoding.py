"""Decoding and cross-attention: prefill and steps equal the forward pass; a sequence may see
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from subquad.nn import AttentionCore, AttentionMixer, Cache, TokenMixer
from subquad.plugin import AttentionConfig, Site
from subquad.registry import build_class
from subquad.testing.calls import (
    afresh,
    call,
    has_drawn,
    modes,
    outputs,
    padded,
    tensors_of,
    trainable,
    weighted,
)
from subquad.testing.cases import compares, leak_of, shows
from subquad.testing.checks.gradients import accuracy_of, compare_gradients
from subquad.testing.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    Meter,
    finite,
)
from subquad.testing.subject import FAR, MAX_LEN, CheckSubject

STARTS, STEPS, MANY = (9, 4, 1), 6, 290
"""Real tokens of each sample before decoding, and tokens decoded; also many of them."""
LONGEST = max(STARTS)
SAID = f"samples of {', '.join(map(str, STARTS))} tokens, {{}} steps"
ORDER = torch.tensor([2, 0, 0, 1])
"""Samples as a beam search may reorder them."""
QUERIES, KEYS = 7, 11
SIZES = (
    *((QUERIES, KEYS), (KEYS, QUERIES), (KEYS, KEYS)),
    *((1, KEYS), (QUERIES, 1), (QUERIES, 150), (150, QUERIES)),
)
"""Queries and keys; more of either than a short sequence has, in a later layer."""


def _no_cache(subject: CheckSubject) -> str:
    if subject.build().caches:
        return ""
    return "offers no decode cache" if subject.causal else "not causal, offers no decode cache"


@compares("prefill returns what forward does", excluded=_no_cache)
@torch.no_grad()
def _cache_prefill(subject: CheckSubject) -> Comparisons:
    if not subject.causal:
        raise CheckFailed("caches is True in a mixer that sees later positions")
    for length in dict.fromkeys((LONGEST, subject.at_most(FAR))):
        keep = padded(length, [length - LONGEST + start for start in _starts_of(subject)])
        mixer, x = subject.build(max_len=length), subject.tokens(3, length)
        got, expected = mixer.prefill(x, keep=keep)[0], outputs(mixer, x, keep)
        yield f"prefill of {length} against forward, padded", got[keep], expected[keep]
        label = f"prefill of {length} against forward, no mask"
        yield label, mixer.prefill(x)[0], outputs(mixer, x)


@compares("steps equal the full forward pass, each sample from its own length", excluded=_no_cache)
@torch.no_grad()
def _cache_step(subject: CheckSubject) -> Comparisons:
    """Many steps from short samples, twice, so that the second sequence would show what is left
    of the first; and a few from long ones, which fill blocks of 512 and 1,024 tokens.
    """
    most = subject.at_most(FAR)
    many, far = max(1, min(MANY, most - LONGEST)), max(0, most - LONGEST - STEPS)
    mixer, starts = subject.build(max_len=most), _starts_of(subject)
    cases = [(1, 0, many), (2, 0, many), (3, far, min(STEPS, many))]
    cases += [(4, end - LONGEST - 3, LONGEST + 6) for end in (512, 1024) if end + LONGEST < most]
    for seed, more, steps in cases:
        x = subject.tokens(3, LONGEST + more + steps, seed=seed)
        expected, cache = outputs(mixer, x), _started(mixer, x, more, starts)
        for i in range(more, more + steps):
            out, cache = mixer.step(_next(x, i, starts), cache)
            yield f"step {i + 1} against forward", out, _next(expected, i, starts)
    x = subject.tokens(3, 2)
    out, _ = mixer.step(x[:, 1].contiguous(), mixer.prefill(x[:, :1].contiguous())[1])
    yield "first step after prefill of one token without a mask", out, outputs(mixer, x)[:, 1]
    return SAID.format(many)


@compares("a step leaves the cache it was given alone", 0.0, excluded=_no_cache)
@torch.no_grad()
def _cache_functional(subject: CheckSubject) -> Comparisons:
    mixer, x = subject.build(), subject.tokens(3, LONGEST + 2)
    alone = mixer.prefill(x[:1, :LONGEST].contiguous())[1]
    tokens = [_next(x, i) for i in range(2)]
    for cache, given in ((_started(mixer, x), tokens), (alone, [token[:1] for token in tokens])):
        for token in given:
            kept = _copies(cache)
            first, after = mixer.step(token, cache)
            for now, then in zip(tensors_of(cache), kept, strict=True):
                if not torch.equal(now, then):
                    where = f"a tensor {tuple(now.shape)}"
                    raise CheckFailed(f"step changed the cache it was given in place, {where}")
            yield (
                f"a second step of {len(token)} from the same cache",
                mixer.step(token, cache)[0],
                first,
            )
            cache = after


@compares("reordering a cache's samples reorders the outputs", excluded=_no_cache)
@torch.no_grad()
def _cache_beams(subject: CheckSubject) -> Comparisons:
    mixer, x = subject.build(), subject.tokens(3, LONGEST + 2)
    cache = _started(mixer, x)
    for i, end in enumerate((" of prefill", "")):
        # before the next step, which may spoil the cache: another check's matter
        moved = _reordered(cache)
        got = mixer.step(_next(x, i)[ORDER], moved)[0]
        expected, cache = mixer.step(_next(x, i), cache)
        yield f"step after reordering the cache{end}", got, expected[ORDER]
    _, alone = mixer.prefill(x[:1, :LONGEST])
    for i in range(LONGEST, LONGEST + 2):
        _, alone = mixer.step(x[:1, i], _reordered(alone, 1, torch.zeros(1, dtype=torch.long)))
    return f"{len(tree_leaves(cache))} tensors"


def _reordered(cache: Cache, batch: int = len(STARTS), order: Tensor = ORDER) -> Cache:
    """A cache of so many samples, with these in another order.

    Raises:
        CheckFailed: it holds something that no sample owns.
    """

    def moved(leaf: Any) -> Tensor | None:
        if leaf is None:
            return None
        if not isinstance(leaf, Tensor):
            held = f"a {type(leaf).__name__} ({leaf}), which no sample owns"
            raise CheckFailed(f"the cache holds {held}")
        if not leaf.dim() or leaf.shape[0] != batch:
            held = f"a tensor {tuple(leaf.shape)} without the batch of {batch} in front"
            raise CheckFailed(f"the cache holds {held}")
        return leaf.index_select(0, order)

    return tree_map(moved, cache)


def _starts_of(subject: CheckSubject) -> tuple[int, ...]:
    """Real tokens of each sample before decoding; equally many where padding counts like them."""
    return STARTS if subject.facts.padding_invariant else (LONGEST,) * len(STARTS)


def _started(
    mixer: TokenMixer, x: Tensor, more: int = 0, starts: tuple[int, ...] = STARTS
) -> Cache:
    """A cache of each sample's start, and of `more` tokens."""
    length = LONGEST + more
    keep = padded(length, [start + more for start in starts])
    return mixer.prefill(x[:, :length].contiguous(), keep=keep)[1]


def _next(x: Tensor, i: int, starts: tuple[int, ...] = STARTS) -> Tensor:
    """What belongs to the i-th token of each sample after its start: (B, L, D) to (B, D)."""
    return x[range(len(starts)), [start + i for start in starts]]


def _copies(cache: Cache) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors_of(cache)]


def _no_cross(subject: CheckSubject) -> str:
    if not subject.facts.cross:
        return "cross not claimed"
    return "built causal: no order between two sequences" if subject.causal else ""


def _no_cross_cache(subject: CheckSubject) -> str:
    if reason := _no_cross(subject):
        return reason
    return "" if subject.build(role="cross").caches else "offers no decode cache across"


@compares("queries and keys of two lengths, padding of neither counts", leak_of, excluded=_no_cross)
def _cross(subject: CheckSubject) -> Comparisons:
    """More keys than queries and fewer: shapes, padded keys and padded queries without
    influence, samples apart.
    """
    short = subject.build(role="cross")
    long = subject.build(role="cross", max_len=150, layer_index=2, num_layers=3)
    for queries, keys in SIZES:
        queries, keys = map(subject.at_most, (queries, keys))
        mixer = short if max(queries, keys) <= MAX_LEN else long
        for _ in modes(mixer):
            _check_shapes(subject, mixer, queries, keys)
            for turned in (False, True) if subject.facts.padding_invariant else ():
                yield from _cross_padding(subject, mixer, queries, keys, turned)
        _check_gradients(subject, mixer, queries, keys)
    return f"{QUERIES} queries with {KEYS} and 150 keys, and the reverse"


def _check_gradients(subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int) -> None:
    """Those of finite differences, by both sequences and all weights."""
    x, context = (subject.tokens(3, n, seed=n).requires_grad_() for n in (queries, keys))
    keep, context_keep = _mask(queries), _mask(keys)

    def values() -> dict[str, Tensor]:
        return {"outputs": _across(mixer, x, context, keep, context_keep)[keep]}

    inputs = {"the queries": x, "the keys": context, **trainable(mixer)}
    for mode in modes(mixer):
        values()
        if has_drawn():
            continue
        where = f"{queries} queries with {keys} keys in {mode}"
        compare_gradients(values, inputs, accuracy_of(subject), where)


def _check_shapes(subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int) -> None:
    x, context = (subject.tokens(3, n, seed=n).requires_grad_() for n in (queries, keys))
    out = _across(mixer, x, context, _mask(queries), _mask(keys))
    label = f"{queries} queries with {keys} keys"
    if out.shape != x.shape:
        raise CheckFailed(f"{label}: output {tuple(out.shape)}, expected {tuple(x.shape)}")
    weighted(out).sum().backward()
    finite(f"{label}: outputs and gradients", out, x.grad, context.grad)


@torch.no_grad()
def _cross_padding(
    subject: CheckSubject, mixer: TokenMixer, queries: int, keys: int, turned: bool
) -> Iterator[Comparison]:
    """Padding behind, or in front where turned."""
    x, context = subject.tokens(3, queries, seed=1), subject.tokens(3, keys, seed=2)
    # of sequences of one length, each has its own mask
    keep, context_keep = _mask(queries, turned), _mask(keys, turned != (queries == keys))

    def at_real(x: Tensor, context: Tensor) -> Tensor:
        return _across(mixer, x, context, keep, context_keep)[keep]

    side = " (left)" if turned else ""
    expected, lengths = at_real(x, context), f"{queries} queries with {keys} keys{side}"
    label = f"{lengths}: output at real queries, other content in padded"
    padded_keys = torch.where(context_keep[..., None], context, 9.0)
    yield f"{label} keys", at_real(x, padded_keys), expected
    padded_queries = torch.where(keep[..., None], x, 9.0)
    yield f"{label} queries", at_real(padded_queries, context), expected
    changed = at_real(torch.cat([x[:1], x[1:] + 1]), torch.cat([context[:1], 2 * context[1:]]))
    first, second = keep[:2].sum(1).tolist()
    yield f"{lengths}: output of sample 0, others changed", changed[:first], expected[:first]
    if mixer.training:  # random numbers would be other ones
        return
    real = context[1:2, context_keep[1]]
    alone = _across(mixer, x[1:2], real, keep[1:2], None)[keep[1:2]]
    rounded = Meter(subject.at_least(ROUNDING))
    rounded.compare(f"{lengths}: padded keys left away", alone, expected[first : first + second])
    rounded.finding()


@compares(
    "with another sequence in memory, prefill and steps return what forward does",
    excluded=_no_cross_cache,
)
@torch.no_grad()
def _cross_cache(subject: CheckSubject) -> Comparisons:
    """Memory is built once and left alone; samples of different lengths; beams reorder memory
    and cache alike.
    """
    for number in subject.lengths(KEYS, MANY):
        yield from _cross_decoding(subject, number)
    return f"{KEYS} and {MANY} keys in memory, {SAID.format(STEPS)}"


def _cross_decoding(subject: CheckSubject, number: int) -> Comparisons:
    # its prefill and step take a memory
    mixer: Any = subject.build(role="cross", max_len=max(number, MAX_LEN))
    keep, keys = padded(LONGEST, STARTS), _mask(number)
    x, context = subject.tokens(3, LONGEST + STEPS), subject.tokens(3, number, seed=2)
    memory = mixer.memory(context, keep=keys)
    built, start = _copies(memory), x[:, :LONGEST].contiguous()
    out, cache = mixer.prefill(start, keep=keep, memory=memory)
    expected = _across(mixer, start, context, keep, keys)
    yield "prefill against forward", out[keep], expected[keep]
    expected = _across(mixer, x, context, None, keys)
    for i in range(STEPS):
        token, wanted = _next(x, i), _next(expected, i)
        moved, _ = mixer.step(token[ORDER], _reordered(cache), memory=_reordered(memory))
        yield f"step {i + 1} after reordering memory and cache", moved, wanted[ORDER]
        out, cache = mixer.step(token, cache, memory=memory)
        yield f"step {i + 1} against forward", out, wanted
    if not all(map(torch.equal, built, tensors_of(memory))):
        raise CheckFailed("decoding changed the memory it was given in place")


def _across(
    mixer: TokenMixer, x: Tensor, context: Tensor, keep: Tensor | None, context_keep: Tensor | None
) -> Tensor:
    """The output (B, Lq, D) of a mixer that sees another sequence."""
    across = partial(afresh(mixer), context=context, context_keep=context_keep)
    return call(across, x, keep).out


def _mask(length: int, turned: bool = False) -> Tensor:
    mask = padded(length, (length, max(1, length - 2), max(1, length // 2)))
    return mask.flip(1) if turned else mask


def _is_core(subject: CheckSubject) -> bool:
    """Whether it is an attention core, whose projections subquad owns."""
    return issubclass(build_class(subject.resolved), AttentionCore)


@shows(
    "weights of a softmax model load into it",
    excluded=lambda subject: "" if _is_core(subject) else "owns its projections",
)
def _softmax_weights(subject: CheckSubject) -> Finding:
    """The projections have the names and shapes that any core has, so weights of a softmax model
    load.
    """
    config = subject.config if isinstance(subject.config, AttentionConfig) else None
    site = Site(dim=subject.dim, num_heads=subject.num_heads, causal=subject.causal)
    softmax = AttentionMixer(_Plain(), site, config).to(subject.dtype)
    mixer = subject.build()
    found = mixer.load_state_dict(softmax.state_dict(), strict=False)
    missing = [name for name in found.missing_keys if not name.startswith("core.")]
    if missing or found.unexpected_keys:
        lacks = f"missing {missing}, unexpected {found.unexpected_keys}"
        raise CheckFailed(f"weights of a softmax model do not fit: {lacks}")
    finite("output with weights of a softmax model", outputs(mixer, subject.tokens(2, KEYS)))
    return Finding(f"{len(softmax.state_dict())} tensors")


class _Plain(AttentionCore):
    """A core without weights."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        return torch.softmax(q @ k.mT, -1) @ v

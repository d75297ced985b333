"""The decode cache: prefill and steps equal the full forward pass, for samples of different lengths."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from subquad.nn import Cache, TokenMixer
from subquad.testing.calls import outputs, padded
from subquad.testing.check import CheckFailed, Finding, shows
from subquad.testing.measure import ROUNDING, Meter
from subquad.testing.subject import CheckSubject

STARTS, STEPS = (9, 4, 1), 6
"""Real tokens of each sample before decoding, and tokens decoded."""


def _no_cache(subject: CheckSubject) -> str:
    """Why the decode cache is not checked."""
    if subject.build().caches:
        return ""
    return "offers no decode cache" if subject.causal else "not causal, offers no decode cache"


@shows("prefill returns what forward does", excluded=_no_cache)
def _cache_prefill(subject: CheckSubject) -> Finding:
    if not subject.causal:
        raise CheckFailed("caches is True in a mixer that sees later positions")
    mixer, meter = subject.build(), Meter(ROUNDING)
    x = subject.tokens(3, max(STARTS))
    keep = padded(max(STARTS), STARTS)
    with torch.no_grad():
        meter.compare(
            "prefill against forward, padded", mixer.prefill(x, keep=keep)[0][keep], outputs(mixer, x, keep)[keep]
        )
        meter.compare("prefill against forward, no mask", mixer.prefill(x)[0], outputs(mixer, x))
    return meter.finding()


@shows("steps equal the full forward pass, each sample from its own length", excluded=_no_cache)
def _cache_step(subject: CheckSubject) -> Finding:
    """Each sample's outputs after its own length equal those of the forward pass over its whole sequence."""
    mixer, meter = subject.build(), Meter(ROUNDING)
    x = subject.tokens(3, max(STARTS) + STEPS)
    expected = outputs(mixer, x)
    with torch.no_grad():
        cache = _started(mixer, x)
        for i in range(STEPS):
            out, cache = mixer.step(next_tokens(x, i), cache)
            wanted = torch.stack([expected[b, start + i] for b, start in enumerate(STARTS)])
            meter.compare(f"step {i + 1} against forward", out, wanted)
        out, _ = mixer.step(x[:, 1].contiguous(), mixer.prefill(x[:, :1].contiguous())[1])
        meter.compare("first step after prefill of one token without a mask", out, expected[:, 1])
    return meter.finding(f"samples of {', '.join(map(str, STARTS))} tokens, {STEPS} steps")


@shows("a step leaves the cache it was given alone", excluded=_no_cache)
def _cache_functional(subject: CheckSubject) -> Finding:
    """A step leaves the cache it was given as it was, and gives the same again."""
    mixer, meter = subject.build(), Meter(0.0)
    x = subject.tokens(3, max(STARTS) + 2)
    with torch.no_grad():
        cache = _started(mixer, x)
        for i in range(2):
            kept = tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, cache)
            first, after = mixer.step(next_tokens(x, i), cache)
            for now, then in zip(tree_leaves(cache), tree_leaves(kept), strict=True):
                if isinstance(now, Tensor) and not torch.equal(now, then):
                    raise CheckFailed(f"step changed the cache it was given in place, a tensor {tuple(now.shape)}")
            meter.compare("a second step from the same cache", mixer.step(next_tokens(x, i), cache)[0], first)
            cache = after
    return meter.finding()


@shows("reordering a cache's samples reorders the outputs", excluded=_no_cache)
def _cache_beams(subject: CheckSubject) -> Finding:
    """Every tensor of a cache has the batch first, and index_select reorders the samples."""
    mixer, meter = subject.build(), Meter(ROUNDING)
    x = subject.tokens(3, max(STARTS) + 2)
    order = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        started = _started(mixer, x)
        after = mixer.step(next_tokens(x, 0)[order], reordered(started, order))[0]
        expected, cache = mixer.step(next_tokens(x, 0), started)
        meter.compare("step after reordering the cache of prefill", after, expected[order])
        again = reordered(cache, order)  # before the next step, which may spoil the cache: another check's matter
        expected = mixer.step(next_tokens(x, 1), cache)[0][order]
        meter.compare("step after reordering the cache", mixer.step(next_tokens(x, 1)[order], again)[0], expected)
    return meter.finding(f"{len(tree_leaves(cache))} tensors")


def reordered(cache: Cache, order: Tensor) -> Cache:
    """A cache with its samples in another order.

    Raises:
        CheckFailed: it holds something that no sample owns.
    """
    leaves, shape = tree_flatten(cache)
    for leaf in leaves:
        if leaf is None:
            continue
        if not isinstance(leaf, Tensor):
            raise CheckFailed(f"the cache holds a {type(leaf).__name__} ({leaf}), which no sample owns")
        if not leaf.dim() or leaf.shape[0] != len(STARTS):
            raise CheckFailed(
                f"the cache holds a tensor {tuple(leaf.shape)} without the batch of {len(STARTS)} in front"
            )
    return tree_unflatten([None if leaf is None else leaf.index_select(0, order) for leaf in leaves], shape)


def _started(mixer: TokenMixer, x: Tensor) -> Cache:
    longest = max(STARTS)
    return mixer.prefill(x[:, :longest].contiguous(), keep=padded(longest, STARTS))[1]


def next_tokens(x: Tensor, i: int) -> Tensor:
    """The i-th token of each sample after its start, (B, D)."""
    return torch.stack([x[b, start + i] for b, start in enumerate(STARTS)])

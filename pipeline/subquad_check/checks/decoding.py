"""Decoding: prefill and steps equal the forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from subquad.nn import Cache, TokenMixer
from subquad_check.calls import beginning, decoded, outputs, padded, tensors_of
from subquad_check.cases import compares
from subquad_check.meter import CheckFailed, Comparisons
from subquad_check.subject import FAR, CheckSubject

STARTS = (9, 4, 1)
"""Real tokens of each sample before decoding."""
LONGEST = max(STARTS)
STEPS = 6
MANY = 290
"""Tokens decoded, and many of them."""
SAID = f"samples of {', '.join(map(str, STARTS))} tokens, {{}} steps"
ORDER = torch.tensor([2, 0, 0, 1])
"""Samples as a beam search may reorder them."""


def _no_cache(subject: CheckSubject) -> str:
    if subject.build().caches:
        return ""
    return f"{'' if subject.causal else 'not causal, '}offers no decode cache"


@compares("prefill returns what forward does", excluded=_no_cache)
@torch.no_grad()
def _cache_prefill(subject: CheckSubject) -> Comparisons:
    if not subject.causal:
        raise CheckFailed("caches is True in a mixer that sees later positions")
    for length in dict.fromkeys((LONGEST, subject.at_most(FAR))):
        mixer = subject.build(max_len=length)
        x = subject.tokens(3, length)
        keep = _padded_starts(_starts_of(subject), length - LONGEST)
        label = f"prefill of {length} against forward"
        out, _ = mixer.prefill(x, keep=keep)
        yield f"{label}, padded", out[keep], outputs(mixer, x, keep)[keep]
        got, _ = mixer.prefill(x)
        yield f"{label}, no mask", got, outputs(mixer, x)


@compares("steps equal the full forward pass, each sample from its own length", excluded=_no_cache)
@torch.no_grad()
def _cache_step(subject: CheckSubject) -> Comparisons:
    """Many steps from short samples, twice, so that the second sequence would show what is left
    of the first; and a few from long ones, which fill blocks of 512 and 1,024 tokens.
    """
    most = subject.at_most(FAR)
    room = most - LONGEST
    many = max(1, min(MANY, room))
    mixer = subject.build(max_len=most)
    starts = _starts_of(subject)
    cases = [(0, many), (0, many), (max(0, room - STEPS), min(STEPS, many))]
    for block in (512, 1024):
        if block < room:
            cases.append((block - LONGEST - 3, LONGEST + 6))
    for seed, (more, steps) in enumerate(cases, 1):
        end = more + steps
        x = subject.tokens(3, LONGEST + end, seed=seed)
        expected = outputs(mixer, x)
        cache = _started(mixer, x, more, starts)
        for i in range(more, end):
            got, cache = mixer.step(next_of(x, i, starts), cache)
            yield f"step {i + 1} against forward", got, next_of(expected, i, starts)
    x = subject.tokens(3, 2)
    got = decoded(mixer, x, 1)[:, 1]
    yield "first step after prefill of one token without a mask", got, outputs(mixer, x)[:, 1]
    return SAID.format(many)


@compares("a step leaves the cache it was given alone", 0.0, excluded=_no_cache)
@torch.no_grad()
def _cache_functional(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x = subject.tokens(3, LONGEST + 2)
    _, alone = mixer.prefill(beginning(x[:1], LONGEST))
    for samples, cache in {3: _started(mixer, x), 1: alone}.items():
        for i in range(2):
            token = next_of(x, i)[:samples]
            with untouched("step changed the cache", cache):
                first, after = mixer.step(token, cache)
            second, _ = mixer.step(token, cache)
            yield f"a second step of {samples} from the same cache", second, first
            cache = after


@contextmanager
def untouched(what: str, cache: Cache) -> Iterator[None]:
    """Refuses what changes a cache in place inside.

    Raises:
        CheckFailed: a tensor is another one afterwards.
    """
    before = [tensor.clone() for tensor in tensors_of(cache)]
    yield
    for now, then in zip(tensors_of(cache), before, strict=True):
        if not torch.equal(now, then):
            raise CheckFailed(f"{what} it was given in place, a tensor {tuple(now.shape)}")


@compares("reordering a cache's samples reorders the outputs", excluded=_no_cache)
@torch.no_grad()
def _cache_beams(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x = subject.tokens(3, LONGEST + 2)
    cache = _started(mixer, x)
    for i, end in enumerate((" of prefill", "")):
        token = next_of(x, i)
        # before the next step, which may spoil the cache: another check's matter
        got, _ = mixer.step(token[ORDER], reordered(cache))
        out, cache = mixer.step(token, cache)
        yield f"step after reordering the cache{end}", got, out[ORDER]
    single = x[:1]
    _, alone = mixer.prefill(beginning(single, LONGEST))
    for token in single[:, LONGEST:].unbind(1):
        _, alone = mixer.step(token, reordered(alone, 1, torch.tensor([0])))
    return f"{len(tree_leaves(cache))} tensors"


def reordered(cache: Cache, batch: int = len(STARTS), order: Tensor = ORDER) -> Cache:
    """A cache of so many samples, with these in another order.

    Raises:
        CheckFailed: it holds something that no sample owns.
    """

    def moved(leaf: Any) -> Tensor | None:
        if leaf is None:
            return None
        if not isinstance(leaf, Tensor):
            raise CheckFailed(
                f"the cache holds a {type(leaf).__name__} ({leaf}), which no sample owns"
            )
        shape = tuple(leaf.shape)
        if shape[:1] != (batch,):
            raise CheckFailed(
                f"the cache holds a tensor {shape} without the batch of {batch} in front"
            )
        return leaf.index_select(0, order)

    return tree_map(moved, cache)


def _starts_of(subject: CheckSubject) -> tuple[int, ...]:
    """Real tokens of each sample before decoding; equally many where padding counts like them."""
    if subject.facts.padding_invariant:
        return STARTS
    return (LONGEST,) * len(STARTS)


def _padded_starts(starts: tuple[int, ...], more: int) -> Tensor:
    """Masks of each sample's start and of `more` tokens."""
    return padded(LONGEST + more, [start + more for start in starts])


def _started(
    mixer: TokenMixer, x: Tensor, more: int = 0, starts: tuple[int, ...] = STARTS
) -> Cache:
    """A cache of each sample's start, and of `more` tokens."""
    _, cache = mixer.prefill(beginning(x, LONGEST + more), keep=_padded_starts(starts, more))
    return cache


def next_of(x: Tensor, i: int, starts: tuple[int, ...] = STARTS) -> Tensor:
    """What belongs to the i-th token of each sample after its start: (B, L, D) to (B, D)."""
    return x[range(len(starts)), [start + i for start in starts]]

"""Decoding, in which prefill and steps equal the forward pass; and attention, where a sequence may
see another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from subquad.nn import Cache, TokenMixer, as_output
from subquad_check.calls import (
    Form,
    Mask,
    alike,
    beginning,
    changed,
    decoded,
    outputs,
    padded,
    passes,
    tensors_of,
)
from subquad_check.cases import compares
from subquad_check.checks.gradients import check_gradients
from subquad_check.checks.samples import other_padding
from subquad_check.meter import ROUNDING, CheckFailed, Comparison, Comparisons, within
from subquad_check.subject import FAR, MAX_LEN, CheckSubject

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
    cases += [(block - LONGEST - 3, LONGEST + 6) for block in (512, 1024) if block < room]
    for seed, (more, steps) in enumerate(cases, 1):
        end = more + steps
        x = subject.tokens(3, LONGEST + end, seed=seed)
        expected = outputs(mixer, x)
        cache = _started(mixer, x, more, starts)
        for i in range(more, end):
            got, cache = mixer.step(_next_of(x, i, starts), cache)
            yield f"step {i + 1} against forward", got, _next_of(expected, i, starts)
    x = subject.tokens(3, 2)
    yield (
        "first step after prefill of one token without a mask",
        decoded(mixer, x, 1)[:, 1],
        outputs(mixer, x)[:, 1],
    )
    return SAID.format(many)


@compares("a step leaves the cache it was given alone", 0.0, excluded=_no_cache)
@torch.no_grad()
def _cache_functional(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x = subject.tokens(3, LONGEST + 2)
    _, alone = mixer.prefill(beginning(x[:1], LONGEST))
    for samples, cache in {3: _started(mixer, x), 1: alone}.items():
        for i in range(2):
            token = _next_of(x, i)[:samples]
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
        token = _next_of(x, i)
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


def _next_of(x: Tensor, i: int, starts: tuple[int, ...] = STARTS) -> Tensor:
    """What belongs to the i-th token of each sample after its start: (B, L, D) to (B, D)."""
    return x[range(len(starts)), [start + i for start in starts]]


QUERIES = 7
KEYS = 11
SIZES = (
    (QUERIES, KEYS),
    (KEYS, QUERIES),
    (KEYS, KEYS),
    (1, KEYS),
    (QUERIES, 1),
    (QUERIES, 150),
    (150, QUERIES),
)
"""Queries and keys; more of either than a short sequence has, in a later layer."""


def _no_cross(subject: CheckSubject) -> str:
    if not subject.facts.cross:
        return "cross not claimed"
    if subject.causal:
        return "built causal: no order between two sequences"
    return ""


@compares(
    "queries and keys of two lengths, padding of neither counts",
    0.0,
    leaks=True,
    excluded=_no_cross,
)
def _cross(subject: CheckSubject) -> Comparisons:
    """More keys than queries and fewer: shapes, padded keys and padded queries without
    influence, samples apart.
    """
    short = subject.build(role="cross")
    long = subject.build(role="cross", max_len=150, layer_index=2, num_layers=3)
    for sizes in SIZES:
        queries, keys = map(subject.at_most, sizes)
        across = _Across(long if max(sizes) > MAX_LEN else short, queries)
        x = subject.tokens(3, queries + keys)
        label = f"{queries} queries with {keys} keys"
        masks = {side: _masks(queries, keys, side == "left") for side in ("right", "left")}
        passes(label, across, x, masks["right"])
        if subject.facts.padding_invariant:
            for side, keep in masks.items():
                yield from _apart(subject, across, x, keep, f", {label}, padding {side}")
        check_gradients(subject, across, x, masks["right"], label)
    return f"{QUERIES} queries with {KEYS} and 150 keys, and the reverse"


class _Across(TokenMixer):
    """A mixer between two sequences that are one, (B, L + Lk, D): keys stand behind the queries,
    where it returns zeros.
    """

    def __init__(self, mixer: TokenMixer, queries: int):
        super().__init__()
        self.mixer = mixer
        self.queries = queries
        self.train(mixer.training)

    def forward(self, x: Tensor, *, keep: Mask = None, carry: Any = None) -> Tensor:
        start, context = _split(x, self.queries)
        masks = (None, None) if keep is None else _split(keep, self.queries)
        result = self.mixer(start, keep=masks[0], context=context, context_keep=masks[1])
        return torch.cat([as_output(result).out, torch.zeros_like(context)], 1)


def _split(x: Tensor, queries: int) -> list[Tensor]:
    return [part.contiguous() for part in x.tensor_split([queries], 1)]


def _apart(
    subject: CheckSubject, across: _Across, x: Tensor, keep: Tensor, about: str
) -> Iterator[Comparison]:
    """Padding and samples without influence on others."""
    others = torch.tensor([[False], [True], [True]])
    own = keep & ~others
    forms = {
        **other_padding(x, keep),
        "of sample 0, others changed": Form(changed(x, others), keep, own, own),
    }
    yield from alike(across, x, keep, forms, about=about)
    left = keep[1].clone()
    left[: across.queries] = True
    mask = keep[1:2, left]
    shorter = {"with padded keys left away": Form(x[1:2, left], mask, mask, keep[1:2])}
    ones = {"with masks of real tokens against none": Form(x, torch.ones_like(keep))}
    rounded = [
        alike(across, x[1:2], keep[1:2], shorter, about=about, dropout=False),
        alike(across, x, None, ones, about=about),
    ]
    yield from within(subject.at_least(ROUNDING), chain(*rounded))


@compares(
    "with another sequence in memory, prefill and steps return what forward does",
    excluded=lambda subject: (
        _no_cross(subject)
        or ("" if subject.build(role="cross").caches else "offers no decode cache across")
    ),
)
@torch.no_grad()
def _cross_cache(subject: CheckSubject) -> Comparisons:
    """Memory is built once and left alone; samples of different lengths; beams reorder memory
    and cache alike.
    """
    keep = padded(LONGEST, STARTS)
    x = subject.tokens(3, LONGEST + STEPS)
    start = beginning(x, LONGEST)
    for number in subject.lengths(KEYS, MANY):
        # its prefill and step take a memory
        mixer: Any = subject.build(role="cross", max_len=max(number, MAX_LEN))
        context = subject.tokens(3, number, seed=2)
        _, context_keep = _split(_masks(LONGEST, number), LONGEST)
        memory = mixer.memory(context, keep=context_keep)
        with untouched("decoding changed the memory", memory):
            out, cache = mixer.prefill(start, keep=keep, memory=memory)
            first, expected = (
                outputs(
                    _Across(mixer, tokens.shape[1]),
                    torch.cat([tokens, context], 1),
                    torch.cat([mask, context_keep], 1),
                )
                for tokens, mask in (
                    (start, keep),
                    (x, padded(LONGEST + STEPS, [LONGEST + STEPS] * 3)),
                )
            )
            yield "prefill against forward", out[keep], first[:, :LONGEST][keep]
            for i in range(STEPS):
                token = _next_of(x, i)
                wanted = _next_of(expected, i)
                step = f"step {i + 1}"
                got, _ = mixer.step(token[ORDER], reordered(cache), memory=reordered(memory))
                yield f"{step} after reordering memory and cache", got, wanted[ORDER]
                out, cache = mixer.step(token, cache, memory=memory)
                yield f"{step} against forward", out, wanted
    return f"{KEYS} and {MANY} keys in memory, {SAID.format(STEPS)}"


def _masks(queries: int, keys: int, turned: bool = False) -> Tensor:
    """Of three samples, two of which have padding in both sequences: behind, or in front where
    turned. Of sequences of one length, each has its own.
    """
    masks = []
    for length, is_turned in ((queries, turned), (keys, turned != (queries == keys))):
        mask = padded(length, (length, max(1, length - 2), max(1, length // 2)))
        masks.append(mask.flip(1) if is_turned else mask)
    return torch.cat(masks, 1)
